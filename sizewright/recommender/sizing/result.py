"""The selected allocation with its evidence, and the recommendation built from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models.memory.device import DeviceMemory
from sizewright.models.prior import JobCurve
from sizewright.recommender.machines.offers import Offer
from sizewright.recommender.similar_jobs.warm_start import WarmStart
from sizewright.recommender.sizing.evaluate_grid import GridEvaluation, with_defaults
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.scoring import Scored
from sizewright.spec import Allocation, Job, Recommendation, Role
from sizewright.spec.reason import Reason


class PriorEvidence(NamedTuple):
    """The prediction of a learned prior for the job, or why it is not used; empty if no prior was given."""

    curve: JobCurve | None = None
    refusal: Reason | None = None
    trial_doubts: tuple[Reason, ...] = ()
    """The trials of the job that are ignored, since they contradict the prior or ran on other GPUs."""
    warm_start: WarmStart = WarmStart()
    """Evidence from runs of similar jobs, which the curve includes."""

    @property
    def was_given(self) -> bool:
        """Return whether there was a prior."""
        return bool(self.curve or self.refusal)

    @property
    def doubts(self) -> tuple[Reason, ...]:
        """Return why the prior, trials or runs are not used."""
        refusal = (self.refusal,) if self.refusal else ()
        return (*refusal, *self.trial_doubts, *self.warm_start.run_doubts)


class Fitted(NamedTuple):
    """A model fitted to the believed trials of a job, and the allocations within the bounds as it predicts them."""

    request: SizingRequest
    recorded: Sequence[Trial]
    """The believed trials, as recorded."""
    trials: Sequence[Trial]
    """The same with defaults for missing values, which the model was fitted to."""
    model: BaseThroughputModel
    evaluations: Sequence[GridEvaluation]
    """One for each offer of hosts; a single one if hosts have no price."""
    prior: PriorEvidence
    offer_notes: Sequence[Reason] = ()
    """Why some hosts are not used."""


@dataclass(frozen=True)
class Selection:
    """The chosen allocation and the evidence for it; `chosen` and `front` are rows of the evaluated grid."""

    job: Job
    trials: Sequence[Trial]
    model: BaseThroughputModel
    evaluation: GridEvaluation
    chosen: int
    front: NDArray[np.int64]
    prior: PriorEvidence
    options: Sequence[Selection] = ()
    """The best allocation on each offer of hosts, the best first; empty if hosts have no price."""
    offer_notes: Sequence[Reason] = ()
    """Why some hosts are not used."""

    @property
    def offer(self) -> Offer | None:
        """The hosts that the allocation is put on; None if hosts have no price."""
        return self.evaluation.scorer.offer

    @property
    def scored(self) -> Scored:
        """The scored grid."""
        return self.evaluation.scored

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Return which rows of the grid the caps allow (n,)."""
        return self.evaluation.allowed

    def allocation(self, row: int) -> Allocation:
        """Return a row of the grid as an allocation, with its memory and the job's other roles."""
        scored = self.scored
        allocation = scored.grid.allocation(row, scored.worker_memory_bytes[row], scored.ps_memory_bytes[row])
        return self.job.with_gpu_kind(self.job.with_sides(allocation))

    def measured_rates(self) -> list[float]:
        """Return the samples/s of the trials at the chosen allocation, with full tables."""
        axes = [axis for axis in vars(self.scored.grid) if self.job.has_ps or not axis.startswith("ps")]
        axes = [axis for axis in axes if self.job.bounds.loaders or axis != "loaders"]
        chosen = [float(getattr(self.scored.grid, axis)[self.chosen]) for axis in axes]
        trials = [with_defaults(self.job, trial) for trial in self.trials if (trial.table_scale or 1.0) == 1.0]
        return [
            float(trial.throughput)
            for trial in trials
            if trial.throughput and np.allclose([float(getattr(trial, axis) or 0.0) for axis in axes], chosen)
        ]

    def predicted_bytes(self, role: Role) -> float | None:
        """Return the predicted memory peak of a replica of the role at the target, or None if it is unknown."""
        memory, grid, row = self.evaluation.memory, self.scored.grid, [self.chosen]
        if not memory.known(role):
            return None
        if role == "worker":
            return float(memory.worker_bytes(grid.batch_size[row], grid.loaders[row])[0])
        return float(memory.ps_bytes(grid.ps[row], grid.workers[row], batch_size=grid.batch_size[row])[0])

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The memory of a GPU, where the target has such and trials or the description of the tables tell it."""
        return self.evaluation.cap_input.device_memory if self.scored.grid.worker_gpu[self.chosen] else None

    def gpu_bytes(self) -> float | None:
        """Return the predicted peak of one GPU at the target, or None if no trial measured one."""
        if self.device_memory is None or not self.device_memory.trials:
            return None
        grid, row = self.scored.grid, [self.chosen]
        return float(self.device_memory.gpu_bytes(grid.workers[row], grid.worker_gpu[row], grid.batch_size[row])[0])

    def needed_bytes(self, role: Role) -> float:
        """Return the bytes that a replica of the role needs at the target, with the margin, before rounding."""
        memory, grid, row = self.evaluation.memory, self.scored.grid, [self.chosen]
        if role == "worker":
            return float(memory.worker_request_bytes(grid.batch_size[row], grid.loaders[row])[0])
        return float(memory.ps_request_bytes(grid.ps[row], grid.workers[row], grid.batch_size[row])[0])


class SizingResult(NamedTuple):
    """A recommendation, the trials and runs of the job that it is based on, and the model."""

    job: Job
    answer: Recommendation
    trials: Sequence[Trial] = ()
    runs: Sequence[FinishedJob] = ()
    model: BaseThroughputModel | None = None
    """The fitted model; None if there is no target."""
