"""An adaptive series: `TrialPlanner` over the allocations that fit the host."""

from __future__ import annotations

import math

import pandas as pd

from sizewright.datasets.trials.trial import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models.default.predictor import AUXILIARY_COLUMNS
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.profiler.planner.candidates import AllocationRow
from sizewright.profiler.planner.trial_planner import TrialPlanner
from sizewright.profiler.series._base import SeriesPlanner, TrialPoint, fastest
from sizewright.profiler.series.space_filling import (
    SMALLER_SCALES,
    fit_memory,
    has_cores_within_bounds,
    host_allocations,
)
from sizewright.spec import Allocation, Job, Role

TRIAL_SECONDS = 8.0
"""Duration of a trial: change of the allocation, warm-up, and measurement."""


class AdaptivePlanner(SeriesPlanner):
    """Measure at most `count` allocations within `host_cores` and `host_memory_bytes`.

    The first allocation is also measured with smaller tables, and once more at the end. This planner is for jobs whose
    bounds fit the host: the best allocation is then among those that can be measured. `predictor` plans
    the trials, as in `TrialPlanner`; with a learned prior, fewer trials may be enough.
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
        predictor: BaseThroughputModel | None = None,
        host_gpus: float = math.inf,
    ) -> None:
        fitting = host_allocations(job, host_cores, whole_cores=whole_cores, host_gpus=host_gpus)
        fitting = [a for a in fitting if has_cores_within_bounds(job, a)] or fitting
        self._allocations = fit_memory(fitting, MemoryModel(job), full_scale, host_memory_bytes)
        frame = pd.DataFrame([_row(allocation) for allocation in self._allocations])
        self._planner = TrialPlanner(
            frame,
            job.objective,
            job.prices,
            job.samples,
            TRIAL_SECONDS,
            max_trials=max(1, count),
            deadline_s=job.deadline,
            predictor=predictor,
        )
        self._scale = full_scale
        self._count = count
        self._trials: list[tuple[TrialPoint, Trial]] = []
        self._smaller: list[TrialPoint] = []
        self._planner_done = False

    def max_replicas(self, role: Role) -> int:
        """Return the maximum number of replicas of a role over the allocations."""
        return max(a.replicas(role) for a in self._allocations)

    def ask(self) -> TrialPoint:  # noqa: D102
        if self.done():
            raise StopIteration
        if self._smaller:
            return self._smaller[0]
        row = None if self._planner_done else self._planner.ask()
        if row is None:
            self._planner_done = True
            return self._trials[0][0]
        return TrialPoint(next(a for a in self._allocations if _row(a) == row), self._scale)

    def tell(self, point: TrialPoint, trial: Trial) -> None:  # noqa: D102
        first = not self._trials
        self._trials.append((point, trial))
        if self._smaller and point == self._smaller[0]:
            self._smaller.pop(0)
            return
        if first:
            self._smaller = [TrialPoint(point.allocation, self._scale * scale) for scale in SMALLER_SCALES]
        if self._planner_done:
            return
        rate = trial.throughput if trial.usable else 0.0
        self._planner.tell(_row(point.allocation), rate, **trial.model_dump(include=set(AUXILIARY_COLUMNS)))

    def done(self) -> bool:
        """Return whether the planner is done and the first allocation was measured again after it."""
        return self._planner_done and self._trials[-1][0] == self._trials[0][0]

    def remaining(self) -> int:
        """Return the maximum number of remaining trials; the planner may stop sooner."""
        total = min(self._count, len(self._allocations)) + len(SMALLER_SCALES) + 1
        return 0 if self.done() else max(1, total - len(self._trials))

    def best(self) -> Trial | None:  # noqa: D102
        return fastest(self._trials, self._scale)


def within_host(job: Job, host_cores: float, host_gpus: float = math.inf) -> bool:
    """Return whether the largest allocation within the bounds fits the host."""
    if job.bounds.worker.gpu and job.bounds.worker.replicas[1] * job.bounds.worker.gpu.count[1] > host_gpus:
        return False
    worker, ps = job.bounds.worker, job.bounds.ps
    largest = worker.replicas[1] * worker.cpu[1] + (ps.replicas[1] * ps.cpu[1] if job.has_ps else 0.0)
    return largest <= host_cores + 1e-9


def _row(allocation: Allocation) -> AllocationRow:
    gpu = allocation.worker[0].gpu
    return {
        "workers": allocation.replicas("worker"),
        "ps": allocation.replicas("ps"),
        "worker_gpu": gpu.count if gpu else 0,
        "worker_cpu": allocation.worker[0].cpu,
        "ps_cpu": allocation.ps[0].cpu,
        "batch_size": allocation.batch_size,
        "loaders": 0 if allocation.loaders is None else allocation.loaders,
        "worker_memory_bytes": allocation.worker[0].memory_bytes,
        "ps_memory_bytes": allocation.ps[0].memory_bytes,
    }
