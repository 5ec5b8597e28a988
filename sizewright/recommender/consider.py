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
from sizewright.models.command_memory import CommandMemory
from sizewright.models.default import ThroughputModel
from sizewright.models.memory import USUAL, Bases, MemoryModel, table_bytes
from sizewright.models.prior import JobCurve
from sizewright.models.reader import ReaderModel
from sizewright.models.table import AXES, as_columns
from sizewright.recommender.caps import Candidates, Ruling, apply_caps
from sizewright.recommender.grid import finer
from sizewright.recommender.run_peaks import peaks_of
from sizewright.recommender.scoring import Scored, Scorer
from sizewright.spec import Cluster, Job

_REFINEMENTS, _MOST_STARTS = 4, 16


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
    `bases` where no peak of the job tells it.

    The grid is refined around the best allocations until its steps are a few per cent, so that wider bounds, whose
    first grid is coarser, find what narrower ones do.
    """
    peaks = list(peaks_of(runs))
    told = [*trials, *peaks]
    memory = CommandMemory.fit(job, told) if job.command else MemoryModel.fit(job, told, bases)
    embedding_bytes = 0.0 if job.command else float(table_bytes(job))
    measured = _covered(measured_ranges(trials), foretold)
    scorer = Scorer(job, model, memory, embedding_bytes, counts_only=counts_only, cluster=cluster)

    def weighed(scored: Scored) -> Considered:
        candidates = Candidates(
            job=job,
            cluster=cluster,
            grid=scored.grid,
            worker_memory_bytes=scored.worker_memory_bytes,
            ps_memory_bytes=scored.ps_memory_bytes,
            embedding_bytes=embedding_bytes,
            measured=measured,
            latest_time_s=scored.latest_time_s,
            extrapolate=extrapolate,
        )
        return Considered(memory, scored, candidates, *apply_caps(candidates), len(peaks))

    found = weighed(scorer.score(scorer.grid(trials, measured)))
    for _ in range(_REFINEMENTS):
        more = finer(found.scored.grid, _starts(found.scored, found.allowed))
        if not len(more):
            break
        found = weighed(found.scored.joined(scorer.score(more)))
    return found


def _starts(scored: Scored, allowed: NDArray[np.bool_]) -> list[int]:
    """The best row of each of the best numbers of replicas, and the best row without caps."""
    rows = np.flatnonzero(allowed)
    rows = rows[np.argsort(scored.objective[rows], kind="stable")]
    counts = np.column_stack([scored.grid.workers[rows], scored.grid.ps[rows]])
    _, first = np.unique(counts, axis=0, return_index=True)
    return [*rows[np.sort(first)[:_MOST_STARTS]].tolist(), scored.best()]


def default_model(job: Job, foretold: JobCurve | None = None) -> BaseThroughputModel:
    """The model for a job: of the user's own code it is not known that nothing else limits it."""
    model = ThroughputModel(foretold=foretold)
    return ReaderModel(model) if job.command else model


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
