"""From trials to a recommendation: fit, score every allocation within the bounds, choose by the objective."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel
from sizewright.models.allreduce import AllreduceModel
from sizewright.models.command_memory import CommandMemory
from sizewright.models.default import ThroughputModel
from sizewright.models.dlrover import DlroverModel
from sizewright.models.foretold import ForetoldModel
from sizewright.models.memory import MemoryModel, table_bytes
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.models.reader import ReaderModel
from sizewright.models.table import AXES, as_columns
from sizewright.recommender.answer import Decision, Prior, infeasible, not_enough, ok
from sizewright.recommender.belief import weigh
from sizewright.recommender.caps import Candidates, apply_caps
from sizewright.recommender.objective import DEADLINE_COVERAGE, completion_time_s
from sizewright.recommender.pareto import pareto_front
from sizewright.recommender.run_peaks import peaks_of
from sizewright.recommender.scoring import Scored, score_all
from sizewright.spec import Cluster, Job, Recommendation


def recommend(
    job: Job,
    trials: Sequence[Trial],
    *,
    cluster: Cluster | None = None,
    model: BaseThroughputModel | None = None,
    extrapolate: bool = False,
    prior: LearnedPrior | None = None,
    runs: Sequence[FinishedJob] = (),
) -> Recommendation:
    """What the job should ask for, given its trials, what a learned prior tells of it, and peaks of its own runs.

    The answer may be "not enough data" or "infeasible"; both carry numbered remedies.
    """
    usable = [trial for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]
    foretold, refused = _foretell(prior, job)
    if not usable and foretold is None:
        why = ". ".join(filter(None, (_why_none(trials), refused)))
        return not_enough(job, trials, None, why, refused=bool(refused))
    filled = [_filled(job, trial) for trial in usable]
    doubts: tuple[str, ...] = ()
    if foretold is not None:
        believed, doubts, refused = weigh(filled, foretold)
        usable, filled = (list(compress(rows, believed)) for rows in (usable, filled))
        foretold = None if refused else foretold
    model = model or (ForetoldModel(foretold) if foretold and not usable else default_model(job, foretold))
    try:
        model.fit(filled)
    except NotEnoughDataError as error:
        return not_enough(job, usable, None, error.message.rstrip("."))
    account = model.explain()
    if not account.enough:
        told = f"{account.distinct_allocations} distinct allocations were measured and {account.needed} are needed"
        return not_enough(job, usable, model, told)
    peaks = list(peaks_of(runs))
    memory = (CommandMemory if job.command else MemoryModel).fit(job, [*filled, *peaks])
    embedding_bytes = 0.0 if job.command else float(table_bytes(job))
    counts_only = bool(usable) and all(t.worker_cpu is None or (t.ps > 0 and t.ps_cpu is None) for t in usable)
    scored = score_all(job, model, memory, embedding_bytes, counts_only=counts_only, cluster=cluster)
    ranges = _covered(measured_ranges(filled), foretold)
    candidates = _candidates(job, cluster, scored, model, ranges, embedding_bytes, extrapolate)
    allowed, rulings = apply_caps(candidates)
    if not allowed.any():
        last = rulings[-1]
        if last.cap == "measured range":
            return not_enough(job, usable, model, last.verdict.reason, last.verdict.remedy)
        return infeasible(job, usable, model, rulings)
    left = np.flatnonzero(allowed)
    chosen = scored.best(left)
    front = left[pareto_front(scored.throughput[left], scored.cost[left])]
    about = Prior(foretold, refused, doubts)
    return ok(
        Decision(job, usable, model, memory, scored, candidates, allowed, chosen, front, rulings, about, len(peaks))
    )


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


def _foretell(prior: LearnedPrior | None, job: Job) -> tuple[JobCurve | None, str]:
    """The curve that a prior tells, or why it tells none."""
    try:
        return (prior.curve(job) if prior else None), ""
    except NotEnoughDataError as error:
        return None, error.message.rstrip(".")


def _covered(measured: dict[str, tuple[float, float]], foretold: JobCurve | None) -> dict[str, tuple[float, float]]:
    """The ranges that were measured, of this job or of those that the prior has learned from."""
    others = foretold.ranges if foretold else {}
    return {
        axis: (min(low, others.get(axis, (low, high))[0]), max(high, others.get(axis, (low, high))[1]))
        for axis, (low, high) in (dict(others) | measured).items()
    }


def _filled(job: Job, trial: Trial) -> Trial:
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


def _candidates(
    job: Job,
    cluster: Cluster | None,
    scored: Scored,
    model: BaseThroughputModel,
    measured: dict[str, tuple[float, float]],
    embedding_bytes: float,
    extrapolate: bool,
) -> Candidates:
    latest = scored.throughput
    if job.objective == "deadline":
        latest, _ = model.predict_interval(scored.columns, DEADLINE_COVERAGE)
    return Candidates(
        job=job,
        cluster=cluster,
        grid=scored.grid,
        worker_memory_bytes=scored.worker_memory_bytes,
        ps_memory_bytes=scored.ps_memory_bytes,
        embedding_bytes=embedding_bytes,
        measured=measured,
        latest_time_s=completion_time_s(job, latest),
        extrapolate=extrapolate,
    )


def _why_none(trials: Sequence[Trial]) -> str:
    if not trials:
        return "no trial of this job is in the store"
    if any(trial.usable for trial in trials):
        return "none of the trials that ended well had workers and PS as this job has"
    last = trials[-1]
    return f"none of the {len(trials)} trials ended well (the last: {last.message or last.status})"
