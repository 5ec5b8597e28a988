"""Random plans: sizes from a millicore to a large host, up to three groups of a role, and unusual texts."""

from __future__ import annotations

import random

from sizewright.spec import Allocation, Deploy, Estimate, Gpu, Group, Job, Plan, Training

_TEXTS = (
    "", "Chosen.", "two\nlines\n", "# no comment", "key: value", "- list", "'quoted' \"twice\"", "tab\there",
    "ünïcödé 中文 🦀", "\u2028\u2029\x85", "null", "0x10", "1e3", "yes", "{{template}}", "$(reboot)", "`reboot`",
    "a" * 200, "\\n \\ end", " leading and trailing ", "&anchor *alias", "!!python/object:os.system", "---", "...",
    "%YAML 1.1",
)  # fmt: skip
_IMAGES = tuple(text for text in _TEXTS if "{{" not in text)
"""A manifest whose image is still a template is refused, so these texts have none."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def random_plan(rng: random.Random, *, max_groups: int, max_name_length: int) -> Plan:
    """Return a plan with limits on the groups per role and on the length of the job's name."""
    roles = {"worker": _groups(rng, max_groups), "ps": _groups(rng, max_groups)}
    roles |= {role: _groups(rng, 1) for role in ("chief", "evaluator") if rng.random() < 0.2}
    target = Allocation(**roles, batch_size=rng.randint(1, 10**6))
    near = target if rng.random() < 0.3 else None
    job = Job(
        name=_name(rng, max_name_length),
        training=Training(batch_size=rng.randint(1, 10**6), samples=rng.randint(1, 10**12)),
        deploy=Deploy(
            image=rng.choice(_IMAGES), command=(rng.choice(_TEXTS[1:]), rng.choice(_TEXTS)), namespace=_name(rng, 20),
            priority_class=rng.choice((None, "high")),
        ),
    )  # fmt: skip
    return Plan(
        id=_name(rng, 40), kind="launch", job=job, target=target, lower=near, upper=near, reason=rng.choice(_TEXTS),
        asked_by=rng.choice(_TEXTS), cooldown_s=rng.choice((0.0, 600.0, rng.random() * 1e6)),
        expected=Estimate(value=2.0, lower=1.0, upper=3.0) if rng.random() < 0.5 else None,
    )  # fmt: skip


def _groups(rng: random.Random, max_groups: int) -> tuple[Group, ...]:
    return tuple(
        Group(
            replicas=rng.randint(1, 200),
            cpu=rng.choice((rng.uniform(0.001, 128), rng.choice((0.05, 0.07, 0.25, 0.4, 1.0, 2.0)))),
            memory_bytes=rng.choice((0, rng.randint(1, 1 << 39), 1 << 30, 10**9)),
            gpu=Gpu(kind=rng.choice(("gpu", "a100")), count=rng.randint(1, 8)) if rng.random() < 0.2 else None,
        )
        for _ in range(rng.randint(1, max_groups))
    )


def _name(rng: random.Random, max_length: int) -> str:
    return "".join(rng.choices(_LETTERS, k=rng.randint(1, max_length)))
