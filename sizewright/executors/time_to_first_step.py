"""Measure the changes that a platform makes by itself: from the plan to the first observed step after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from sizewright.executors.change_costs import ChangeCosts, ChangeKind
from sizewright.spec import Allocation, Group, Metrics, Plan, Role


class _Awaited(NamedTuple):
    plan: Plan
    target: Allocation
    since_s: float
    samples: int
    kind: ChangeKind | None


class TimeToFirstStep:
    """Measure the changes of all jobs of one executor, and add them to `costs`."""

    def __init__(self, costs: ChangeCosts, clock: Callable[[], float]) -> None:
        self._costs, self._clock = costs, clock
        self._awaited: dict[str, _Awaited] = {}

    def await_step(
        self,
        job: str,
        plan: Plan,
        target: Allocation,
        since_s: float,
        samples: int = 0,
        kind: ChangeKind | None = None,
    ) -> None:
        """Start measuring a plan that was submitted at `since_s`, when `samples` were trained.

        `target` is the allocation that the replicas will report. `kind` is how the platform carries the plan out, if
        that is not the plan's own kind.
        """
        self._awaited[job] = _Awaited(plan, target, since_s, samples, kind)

    def on_metrics(self, job: str, metrics: Metrics) -> bool:
        """Return whether the job trains at the target; the first observation that shows it ends the measurement."""
        awaited = self._awaited.get(job)
        if awaited is None:
            return True
        if not same_replicas(metrics.allocation, awaited.target) or metrics.samples_trained <= awaited.samples:
            return False
        self._costs.add(awaited.plan, self._clock() - awaited.since_s, awaited.kind)
        del self._awaited[job]
        return True

    def forget(self, job: str) -> None:
        """Stop measuring a job that was stopped."""
        self._awaited.pop(job, None)


def same_replicas(running: Allocation | None, target: Allocation) -> bool:
    """Return whether the same number of replicas of each size run, in any order."""
    return running is not None and _by_size(running) == _by_size(target)


def _by_size(allocation: Allocation) -> Counter[tuple[Role, Group]]:
    counts: Counter[tuple[Role, Group]] = Counter()
    for role, group in allocation.groups:
        counts[role, group.model_copy(update={"replicas": 1})] += group.replicas
    return +counts
