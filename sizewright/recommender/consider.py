"""Every allocation within the bounds, with what a fitted model tells of it, and which of them the caps leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models._memory import MemoryForecast
from sizewright.models.allreduce import AllreduceModel
from sizewright.models.command_memory import CommandMemory
from sizewright.models.default import ThroughputModel
from sizewright.models.dlrover import DlroverModel
from sizewright.models.memory import USUAL, Bases, MemoryModel, table_bytes
from sizewright.models.prior import JobCurve
from sizewright.models.reader import ReaderModel
from sizewright.models.table import AXES, as_columns
from sizewright.recommender.caps import Candidates, Ruling, apply_caps
from sizewright.recommender.objective import DEADLINE_COVERAGE, completion_time_s
from sizewright.recommender.run_peaks import peaks_of
from sizewright.recommender.scoring import Scored, score_all
from sizewright.spec import Cluster, Job


class Considered(NamedTuple):
    """Rows of a grid of allocations, scored."""

    memory: MemoryForecast
    scored: Scored
    candidates: Candidates
    allowed: NDArray[np.bool_]
    rulings: list[Ruling]
    peaks: int
    """Of runs of the job, that memory rests on."""


def consider(
    job: Job,
    model: BaseThroughputModel,
    trials: Sequence[Trial],
    *,
    foretold: JobCurve | None = None,
    cluster: Cluster | None = None,
    extrapolate: bool = False,
    runs: Sequence[FinishedJob] = (),
    counts_only: bool = False,
    bases: Bases = USUAL,
) -> Considered:
    """By a model that is fitted to these `trials`, which tell all that a model takes (`filled`); memory rests on
    `bases` where no peak of the job tells it."""
    peaks = list(peaks_of(runs))
    told = [*trials, *peaks]
    memory = CommandMemory.fit(job, told) if job.command else MemoryModel.fit(job, told, bases)
    embedding_bytes = 0.0 if job.command else float(table_bytes(job))
    scored = score_all(job, model, memory, embedding_bytes, counts_only=counts_only, cluster=cluster)
    latest = scored.throughput
    if job.objective == "deadline":
        latest, _ = model.predict_interval(scored.columns, DEADLINE_COVERAGE)
    candidates = Candidates(
        job=job,
        cluster=cluster,
        grid=scored.grid,
        worker_memory_bytes=scored.worker_memory_bytes,
        ps_memory_bytes=scored.ps_memory_bytes,
        embedding_bytes=embedding_bytes,
        measured=_covered(measured_ranges(trials), foretold),
        latest_time_s=completion_time_s(job, latest),
        extrapolate=extrapolate,
    )
    allowed, rulings = apply_caps(candidates)
    return Considered(memory, scored, candidates, allowed, rulings, len(peaks))


def default_model(job: Job, foretold: JobCurve | None = None) -> BaseThroughputModel:
    """The model for a job: of the user's own code it is not known that nothing else limits it."""
    if job.command is None:
        return ThroughputModel(foretold=foretold)
    return ReaderModel(DlroverModel() if job.has_ps else AllreduceModel())


def measured_ranges(trials: Sequence[Trial]) -> dict[str, tuple[float, float]]:
    """Least and greatest of every axis that the trials know."""
    columns = as_columns(trials, AXES)
    return {
        axis: (float(np.nanmin(column)), float(np.nanmax(column)))
        for axis, column in columns.items()
        if np.isfinite(column).any() and np.nanmax(column) > 0
    }


def filled(job: Job, trial: Trial) -> Trial:
    """The trial with the job's batch size and tables where it tells none, and one core or the nearest in the bounds."""
    bounds = job.bounds
    known: dict[str, object] = {
        "batch_size": trial.batch_size or job.training.batch_size,
        "worker_cpu": trial.worker_cpu or float(np.clip(1.0, *bounds.worker.cpu)),
    }
    if job.has_ps:
        known["ps_cpu"] = trial.ps_cpu or float(np.clip(1.0, *bounds.ps.cpu))
    if job.command is None:
        known["embedding_bytes"] = trial.embedding_bytes or round((trial.table_scale or 1.0) * table_bytes(job))
    return trial.model_copy(update=known)


def _covered(measured: dict[str, tuple[float, float]], foretold: JobCurve | None) -> dict[str, tuple[float, float]]:
    """The ranges that were measured, of this job or of those that the prior has learned from."""
    others = foretold.ranges if foretold else {}
    return {
        axis: (min(low, others.get(axis, (low, high))[0]), max(high, others.get(axis, (low, high))[1]))
        for axis, (low, high) in (dict(others) | measured).items()
    }
