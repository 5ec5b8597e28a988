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
from sizewright.models.prior import JobCurve
from sizewright.recommender.similar_jobs.warm_start import WarmStart
from sizewright.recommender.sizing.evaluate_grid import GridEvaluation
from sizewright.recommender.sizing.scoring import Scored
from sizewright.spec import Job, Recommendation
from sizewright.spec.reason import Reason


class PriorEvidence(NamedTuple):
    """What a learned prior predicts for the job, or why it is not used; empty if no prior was given."""

    curve: JobCurve | None = None
    refusal: Reason | None = None
    doubts: tuple[Reason, ...] = ()
    """The trials of the job that contradict the prior."""
    warm_start: WarmStart = WarmStart()
    """Evidence from runs of similar jobs, which the curve includes."""


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

    @property
    def scored(self) -> Scored:
        """The scored grid."""
        return self.evaluation.scored

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Which rows of the grid the caps allow (n,)."""
        return self.evaluation.allowed


class SizingResult(NamedTuple):
    """A recommendation, the trials and runs of the job that it is based on, and the model."""

    job: Job
    answer: Recommendation
    trials: Sequence[Trial] = ()
    runs: Sequence[FinishedJob] = ()
    model: BaseThroughputModel | None = None
    """The fitted model; None if there is no target."""
