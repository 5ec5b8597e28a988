"""From trials to a recommendation: fit, score every allocation within the bounds, choose by the objective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel
from sizewright.models.allreduce import AllreduceModel
from sizewright.models.command_memory import CommandMemory
from sizewright.models.default import ThroughputModel
from sizewright.models.dlrover import DlroverModel
from sizewright.models.memory import MemoryModel, table_bytes
from sizewright.models.reader import ReaderModel
from sizewright.models.table import AXES, as_columns
from sizewright.recommender.answer import Decision, infeasible, not_enough, ok
from sizewright.recommender.caps import Candidates, apply_caps
from sizewright.recommender.objective import DEADLINE_COVERAGE, completion_time_s
from sizewright.recommender.pareto import pareto_front
from sizewright.recommender.scoring import Scored, score_all
from sizewright.spec import Cluster, Job, Recommendation


def recommend(
    job: Job,
    trials: Sequence[Trial],
    *,
    cluster: Cluster | None = None,
    model: BaseThroughputModel | None = None,
    extrapolate: bool = False,
) -> Recommendation:
    """What the job should ask for, given its trials.

    The answer may be "not enough data" or "infeasible"; both carry numbered remedies.
    """
    usable = [trial for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]
    if not usable:
        return not_enough(job, trials, None, _why_none(trials))
    filled = [_filled(job, trial) for trial in usable]
    model = model or default_model(job)
    try:
        model.fit(filled)
    except NotEnoughDataError as error:
        return not_enough(job, usable, None, error.message.rstrip("."))
    account = model.explain()
    if not account.enough:
        told = f"{account.distinct_allocations} distinct allocations were measured and {account.needed} are needed"
        return not_enough(job, usable, model, told)
    memory = CommandMemory.fit(job, filled) if job.command else MemoryModel.fit(job, filled)
    embedding_bytes = 0.0 if job.command else float(table_bytes(job))
    counts_only = all(t.worker_cpu is None or (t.ps > 0 and t.ps_cpu is None) for t in usable)
    scored = score_all(job, model, memory, embedding_bytes, counts_only=counts_only, cluster=cluster)
    candidates = _candidates(job, cluster, scored, model, filled, embedding_bytes, extrapolate)
    allowed, rulings = apply_caps(candidates)
    if not allowed.any():
        last = rulings[-1]
        if last.cap == "measured range":
            return not_enough(job, usable, model, last.verdict.reason, last.verdict.remedy)
        return infeasible(job, usable, model, rulings)
    left = np.flatnonzero(allowed)
    # Where the objective cannot tell (with prices of 0, say), the sooner is better.
    chosen = int(left[np.lexsort((-scored.throughput[left], scored.objective[left]))[0]])
    front = left[pareto_front(scored.throughput[left], scored.cost[left])]
    return ok(Decision(job, usable, model, memory, scored, candidates, allowed, chosen, front, rulings))


def default_model(job: Job) -> BaseThroughputModel:
    """The model for a job: of the user's own code it is not known that nothing else limits it."""
    if job.command is None:
        return ThroughputModel()
    return ReaderModel(DlroverModel() if job.has_ps else AllreduceModel())


def measured_ranges(trials: Sequence[Trial]) -> dict[str, tuple[float, float]]:
    """Least and greatest of every axis that the trials know."""
    columns = as_columns(trials, AXES)
    return {
        axis: (float(np.nanmin(column)), float(np.nanmax(column)))
        for axis, column in columns.items()
        if np.isfinite(column).any() and np.nanmax(column) > 0
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
    trials: Sequence[Trial],
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
        measured=measured_ranges(trials),
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
