"""Manifests of random plans: each is written, validated against the published definition of its kind, and read back.

`round_trips` counts the manifests that are read back as the same plan; `render_ms` is the 99th percentile of the time
to write one, on the slowest platform.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from benchmarks._published import validator
from benchmarks._random_plans import random_plan
from benchmarks._report import choose, finish
from sizewright.executors import get_executor
from sizewright.spec import ROLES, Allocation, Plan, Role

CASES = choose(10_000, 1_000, 60)
KINDS = {
    "dlrover": "ElasticJob", "jobset": "JobSet", "kubeflow": "TFJob", "kuberay": "RayJob", "pytorchjob": "PyTorchJob",
    "trainjob": "TrainJob", "volcano": "Job",
}  # fmt: skip
WITH_PS = "TrainingRuntime"
"""The kind of the second document of a TrainJob with PS."""
NAMES = (*KINDS, "file", "slurm")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TARGETS = {"round_trips": "all of the cases", "cases": ">= 10000", "invalid_manifests": "0", "render_ms": "<= 20"}


class Manifests(NamedTuple):
    """What came of the manifests of random plans, and the milliseconds to write one by executor (99th percentile)."""

    cases: int
    round_trips: int
    invalid: int
    render_ms: dict[str, float]


def main() -> None:
    made = written_and_read(CASES, NAMES)
    figures = {
        "cases": float(made.cases), "round_trips": float(made.round_trips), "invalid_manifests": float(made.invalid),
        "render_ms": max(made.render_ms.values()),
    }  # fmt: skip
    finish("executors", figures, TARGETS, {"render_ms_p99": made.render_ms})


def written_and_read(cases: int, names: Sequence[str]) -> Manifests:
    """Write, validate and read back a number of random plans, in turn by each executor."""
    rng = random.Random(1)
    executors: dict[str, Any] = {name: get_executor(name) for name in names}
    validators = {kind: validator(kind) for kind in (*KINDS.values(), WITH_PS)}
    durations_ms: dict[str, list[float]] = defaultdict(list)
    round_trips, invalid, failures = 0, 0, []
    for number in range(cases):
        name = names[number % len(names)]
        executor = executors[name]
        plan = random_plan(rng, max_groups=_max_groups(executor), max_name_length=_max_name_length(executor))
        plan = _that_fits(plan, executor)
        text = _timed(durations_ms[name], lambda executor=executor, plan=plan: executor.render(plan))  # type: ignore[misc]
        if executor.parse(text) == plan:
            round_trips += 1
        else:
            failures.append(f"{name}: {plan.model_dump_json(exclude_defaults=True)}")
        if name in KINDS:
            invalid += not all(validators[each["kind"]].is_valid(each) for each in yaml.load_all(text, _LOADER))
    for failure in failures[:5]:
        print(f"Read back as another plan: {failure:.300}")
    slowest = {name: float(np.percentile(durations, 99)) for name, durations in durations_ms.items()}
    for name, durations in durations_ms.items():
        median_ms, p99_ms = np.median(durations), slowest[name]
        print(
            f"{name:<10}{len(durations):>7} rendered, {median_ms:7.2f} ms (median), {p99_ms:7.2f} ms (99th percentile)"
        )
    return Manifests(cases, round_trips, invalid, slowest)


def _max_groups(executor: Any) -> int:
    """Return 1 for kinds of manifest that have one size per role, else 3."""
    return 3 if getattr(executor, "named_by", "any") else 1


def _max_name_length(executor: Any) -> int:
    return min(52, getattr(executor, "max_name_length", 52))


def _that_fits(plan: Plan, executor: Any) -> Plan:
    """Return the plan without roles that the executor's kind has not, and without a priority that it cannot state."""
    missing = [role for role in ROLES if role not in getattr(executor, "roles", ROLES)]
    without = {
        name: _without(allocation, missing)
        for name in ("target", "lower", "upper")
        if (allocation := getattr(plan, name))
    }
    deploy = plan.job.deploy.model_copy(update={"priority_class": None} if executor.name == "trainjob" else {})
    return plan.model_copy(update={**without, "job": plan.job.model_copy(update={"deploy": deploy})})


def _without(allocation: Allocation, roles: list[Role]) -> Allocation:
    return allocation.model_copy(update=dict.fromkeys(roles, ()))


def _timed(durations_ms: list[float], render: Callable[[], str]) -> str:
    start = time.perf_counter()
    text = render()
    durations_ms.append((time.perf_counter() - start) * 1e3)
    return text


if __name__ == "__main__":
    main()
