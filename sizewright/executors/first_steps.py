"""How long changes take that a platform carries out by itself: from the plan to the first step after it, as looks at
the job show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from sizewright.executors.change_costs import ChangeCosts
from sizewright.spec import Allocation, Group, Metrics, Plan, Role


class _Awaited(NamedTuple):
    plan: Plan
    target: Allocation
    since_s: float
    samples: int


class FirstSteps:
    """Of all jobs of one executor; what was measured is added to `costs`."""

    def __init__(self, costs: ChangeCosts, clock: Callable[[], float]) -> None:
        self._costs, self._clock = costs, clock
        self._awaited: dict[str, _Awaited] = {}

    def await_step(self, job: str, plan: Plan, target: Allocation, since_s: float, samples: int = 0) -> None:
        """The plan was handed over at `since_s`, when `samples` were trained; `target` is how replicas will tell it."""
        self._awaited[job] = _Awaited(plan, target, since_s, samples)

    def look(self, job: str, metrics: Metrics) -> bool:
        """Whether all runs as planned and trains; the first look that finds so is when it did."""
        awaited = self._awaited.get(job)
        if awaited is None:
            return True
        if not _same(metrics.allocation, awaited.target) or metrics.samples_trained <= awaited.samples:
            return False
        self._costs.add(awaited.plan, self._clock() - awaited.since_s)
        del self._awaited[job]
        return True

    def forget(self, job: str) -> None:
        """It was stopped."""
        self._awaited.pop(job, None)


def _same(runs: Allocation | None, target: Allocation) -> bool:
    """Whether as many replicas of each size run, in whatever order."""
    return runs is not None and _by_size(runs) == _by_size(target)


def _by_size(allocation: Allocation) -> Counter[tuple[Role, Group]]:
    counted: Counter[tuple[Role, Group]] = Counter()
    for role, group in allocation.groups:
        counted[role, group.model_copy(update={"replicas": 1})] += group.replicas
    return +counted
