"""Manifests of random plans: whether each is read back as the plan it was, whether the published definition of its kind
takes it, and how long it takes to write.

`round_trips` are the cases in which all was as it should be; `render_ms` is the slowest platform's 99th percentile.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import yaml

from benchmarks._published import validator
from benchmarks._random_plans import random_plan
from benchmarks._report import choose, finish
from sizewright.executors import get_executor

CASES = choose(10_000, 1_000, 60)
KINDS = {"dlrover": "ElasticJob", "kubeflow": "TFJob", "volcano": "Job", "kuberay": "RayJob"}
NAMES = (*KINDS, "file", "slurm")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TARGETS = {"round_trips": "all of the cases", "cases": ">= 10000", "invalid_manifests": "0", "render_ms": "<= 20"}


def main() -> None:
    rng = random.Random(1)
    executors: dict[str, Any] = {name: get_executor(name) for name in NAMES}
    validators = {name: validator(kind) for name, kind in KINDS.items()}
    taken_ms: dict[str, list[float]] = defaultdict(list)
    same, invalid, failures = 0, 0, []
    for number in range(CASES):
        name = NAMES[number % len(NAMES)]
        plan = random_plan(rng, most_groups=_most_groups(executors[name]), longest_name=_longest(executors[name]))
        text = _timed(taken_ms[name], lambda made=executors[name], plan=plan: made.render(plan))  # type: ignore[misc]
        if executors[name].parse(text) == plan:
            same += 1
        else:
            failures.append(f"{name}: {plan.model_dump_json(exclude_defaults=True)}")
        if name in validators:
            invalid += not validators[name].is_valid(yaml.load(text, _LOADER))
    for failure in failures[:5]:
        print(f"read back as another plan: {failure:.300}")
    slowest = {name: float(np.percentile(taken, 99)) for name, taken in taken_ms.items()}
    for name, taken in taken_ms.items():
        middle, tail = np.median(taken), slowest[name]
        print(f"{name:<10}{len(taken):>7} rendered, {middle:7.2f} ms in the median, {tail:7.2f} at 99 %")
    figures = {
        "cases": float(CASES), "round_trips": float(same), "invalid_manifests": float(invalid),
        "render_ms": max(slowest.values()),
    }  # fmt: skip
    finish("executors", figures, TARGETS, {"render_ms_p99": slowest})


def _most_groups(executor: Any) -> int:
    """Kinds of manifest with one size per role take one."""
    return 3 if getattr(executor, "named_by", "any") else 1


def _longest(executor: Any) -> int:
    return min(52, getattr(executor, "max_name_length", 52))


def _timed(taken_ms: list[float], render: Callable[[], str]) -> str:
    began = time.perf_counter()
    text = render()
    taken_ms.append((time.perf_counter() - began) * 1e3)
    return text


if __name__ == "__main__":
    main()
