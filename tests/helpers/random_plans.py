"""Random plans of every kind, for properties that hold for all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from sizewright.formatting import GIB, MIB
from sizewright.spec import Allocation, Deploy, Estimate, Gpu, Group, Job, Plan, Training

_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
_WORDS = st.tuples(_TEXT.filter(bool), _TEXT)
_GPUS = st.none() | st.builds(Gpu, kind=st.sampled_from(["gpu", "a100"]), count=st.integers(1, 8))
_CORES = st.floats(0.001, 128.0) | st.sampled_from([0.05, 0.07, 0.25, 0.4, 1.0, 2.0])
_MEMORY = st.just(0) | st.integers(1, 512 * GIB) | st.sampled_from([MIB, GIB, 1000**3])


def groups(max_groups: int = 1) -> st.SearchStrategy[tuple[Group, ...]]:
    """Draw one to `max_groups` groups of a role."""
    group = st.builds(Group, replicas=st.integers(1, 200), cpu=_CORES, memory_bytes=_MEMORY, gpu=_GPUS)
    return st.lists(group, min_size=1, max_size=max_groups).map(tuple)


@st.composite
def plans(draw: st.DrawFn, *, max_groups: int = 1, sides: bool = True, kind: str = "") -> Plan:
    """Draw a plan with arbitrary text wherever a plan has text."""
    some = groups(max_groups)
    side = some if sides else st.just(())
    target = Allocation(
        worker=draw(some), ps=draw(some), chief=draw(st.just(()) | side), evaluator=draw(st.just(()) | side),
        batch_size=draw(st.integers(1, 10**6)),
    )  # fmt: skip
    job = Job(
        name=draw(_NAMES),
        training=Training(batch_size=draw(st.integers(1, 10**6)), samples=draw(st.integers(1, 10**12))),
        deploy=Deploy(
            image=draw(_TEXT.filter(lambda text: "{" not in text)), command=draw(_WORDS), namespace=draw(_NAMES),
            priority_class=draw(st.none() | st.just("high")),
        ),
    )  # fmt: skip
    of_kind = kind or draw(st.sampled_from(["launch", "adjust"]))
    near = draw(st.none() | st.just(target))
    return Plan(
        id=draw(_NAMES), kind=of_kind, job=job, target=target, current=near if of_kind == "adjust" else None,  # type: ignore[arg-type]
        lower=near, upper=draw(st.none() | st.just(target)), reason=draw(_TEXT), asked_by=draw(_TEXT),
        migrate=draw(st.just(()) | st.just(("ps-1",))), cooldown_s=draw(st.floats(0, 1e6)),
        expected=draw(st.none() | st.just(Estimate(value=2.0, lower=1.0, upper=3.0))),
    )  # fmt: skip


def without_ps(plan: Plan) -> Plan:
    """Return the plan with workers only."""
    nothing = {"ps": (), "chief": (), "evaluator": ()}
    allocations = {"target": plan.target, "current": plan.current, "lower": plan.lower, "upper": plan.upper}
    return plan.model_copy(
        update={name: each and each.model_copy(update=nothing) for name, each in allocations.items()}
    )
