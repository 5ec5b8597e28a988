"""A series that goes where the best allocation may be: `TrialPlanner` over what the host can hold."""

from __future__ import annotations

import math

import pandas as pd

from sizewright.datasets.trials import Trial
from sizewright.models.default import LEARNED_FROM
from sizewright.models.memory import MemoryModel
from sizewright.models.prior.curve import JobCurve
from sizewright.profiler._base import Point, SeriesPlanner, fastest
from sizewright.profiler.candidates import AllocationRow
from sizewright.profiler.planner import TrialPlanner
from sizewright.profiler.spread import SMALLER_SCALES, held_by_memory, host_allocations
from sizewright.spec import Allocation, Job, Role

TRIAL_SECONDS = 8.0
"""A change of the allocation, warming up, and measuring."""


class GuidedPlanner(SeriesPlanner):
    """At most `count` allocations within `host_cores` and `host_memory_bytes`; the first also at smaller tables, and
    once more at the end.

    For jobs whose bounds the host can hold: then the best allocation is among those that can be measured. `foretold` is
    what a learned prior tells of the job: then fewer may be enough.
    """

    def __init__(
        self,
        job: Job,
        host_cores: float,
        host_memory_bytes: float = math.inf,
        *,
        count: int = 9,
        full_scale: float = 1.0,
        whole_cores: bool = False,
        foretold: JobCurve | None = None,
    ) -> None:
        held = host_allocations(job, host_cores, whole_cores=whole_cores)
        held = [a for a in held if _within_bounds(job, a)] or held
        self._allocations = held_by_memory(held, MemoryModel(job), full_scale, host_memory_bytes)
        frame = pd.DataFrame([_row(allocation) for allocation in self._allocations])
        self._planner = TrialPlanner(
            frame,
            job.objective,
            job.prices,
            job.samples,
            TRIAL_SECONDS,
            max_trials=max(1, count),
            deadline_s=job.deadline,
            foretold=foretold,
        )
        self._scale, self._count = full_scale, count
        self._told: list[tuple[Point, Trial]] = []
        self._smaller: list[Point] = []
        self._over = False

    def most(self, role: Role) -> int:
        """Replicas of a role at the allocation that has the most of them."""
        return max(a.replicas(role) for a in self._allocations)

    def ask(self) -> Point:  # noqa: D102
        if self.done():
            raise StopIteration
        if self._smaller:
            return self._smaller[0]
        asked = None if self._over else self._planner.ask()
        self._over = asked is None
        return Point(self._at(asked), self._scale) if asked else self._told[0][0]

    def tell(self, point: Point, trial: Trial) -> None:  # noqa: D102
        first = not self._told
        self._told.append((point, trial))
        if self._smaller and point == self._smaller[0]:
            self._smaller.pop(0)
            return
        if first:
            self._smaller = [Point(point.allocation, self._scale * scale) for scale in SMALLER_SCALES]
        if self._over:
            return
        rate = trial.throughput if trial.usable else 0.0
        self._planner.tell(_row(point.allocation), rate, **trial.model_dump(include=set(LEARNED_FROM)))

    def done(self) -> bool:
        """When the planner is, and the first allocation was measured again after it."""
        return self._over and self._told[-1][0] == self._told[0][0]

    def left(self) -> int:
        """So many at most: the planner may end sooner."""
        most = min(self._count, len(self._allocations)) + len(SMALLER_SCALES) + 1
        return 0 if self.done() else max(1, most - len(self._told))

    def best(self) -> Trial | None:  # noqa: D102
        return fastest(self._told, self._scale)

    def _at(self, asked: AllocationRow) -> Allocation:
        return next(a for a in self._allocations if _row(a) == asked)


def within_host(job: Job, host_cores: float) -> bool:
    """Whether the host can hold the greatest allocation within the bounds."""
    worker, ps = job.bounds.worker, job.bounds.ps
    most = worker.replicas[1] * worker.cpu[1] + (ps.replicas[1] * ps.cpu[1] if job.has_ps else 0.0)
    return most <= host_cores + 1e-9


def _within_bounds(job: Job, allocation: Allocation) -> bool:
    """Whether its replicas have cores that the job may ask for; a host of whole cores holds others too."""
    sides = ((job.bounds.worker, allocation.worker), (job.bounds.ps, allocation.ps))
    return all(bounds.cpu[0] <= group.cpu <= bounds.cpu[1] for bounds, groups in sides for group in groups)


def _row(allocation: Allocation) -> AllocationRow:
    return {
        "workers": allocation.replicas("worker"),
        "ps": allocation.replicas("ps"),
        "worker_cpu": allocation.worker[0].cpu,
        "ps_cpu": allocation.ps[0].cpu,
        "batch_size": allocation.batch_size,
        "worker_memory_bytes": allocation.worker[0].memory_bytes,
        "ps_memory_bytes": allocation.ps[0].memory_bytes,
    }
