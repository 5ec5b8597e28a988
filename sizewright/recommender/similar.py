"""Runs of jobs like one that is to start, as if it had run itself: what they showed beyond what was foretold of them.

How alike two jobs are is how far apart they lie in what the learned prior describes jobs by (logarithms of sizes in
standard deviations over the jobs that were measured, family and mode; `models/prior/experience.py`). A run that went
at r samples/s at an allocation a, where its own curve foretells f(a), tells of a job with the curve g

    g(a) · r / f(a),     to exp(±τ(1 + d)) at distance d, and wider with age: each half-life counts as half a run.

Tried on a history of mis-sized runs over the bank's jobs: what the pick by time × cost loses falls from 2.8 % with the
prior alone to between 2.0 and 2.8 %, while the mean of the allocations that each run should have had, as DLRover-RM
smooths them, loses 3 to 20 %: jobs of one shape with other batches want other allocations.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from sizewright.datasets.finished import LEAST_STRETCH_S, FinishedJob, Stretch
from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.models.prior.experience import describe
from sizewright.spec import Allocation, Job

REACH = 2.5
"""Standard deviations: beyond that two jobs are not alike."""
_ERROR = 0.05
_HALF_LIFE_DAYS = 60.0
_MOST = 30


class Neighbour(NamedTuple):
    """A stretch of a run of a job like it, and what it tells of the job that is to start."""

    run: FinishedJob
    distance: float
    trial: Trial
    weight: float
    """Of all neighbours together 1: by how sure each is."""


def neighbours(job: Job, runs: Sequence[FinishedJob], prior: LearnedPrior, now: datetime) -> list[Neighbour]:
    """The nearest and latest first; none for a job that the prior tells nothing of."""
    try:
        curve = prior.curve(job)
    except NotEnoughDataError:
        return []
    found = []
    for run in runs:
        if run.job is None or run.ran_out_of_memory or run.key == job.hash:
            continue
        distance = _distance(job, run.job, prior)
        if distance > REACH:
            continue
        try:
            other = prior.curve(run.job)
        except NotEnoughDataError:
            continue
        error = _ERROR * (1 + distance) * 2 ** (0.5 * _age_days(run, now) / _HALF_LIFE_DAYS)
        trials = [_transferred(job, curve, other, stretch, run, error) for stretch in _told(run)]
        found += [Neighbour(run, distance, trial, error**-2) for trial in trials]
    nearest = sorted(found, key=lambda each: -each.weight)[:_MOST]
    total = sum(each.weight for each in nearest)
    return [each._replace(weight=each.weight / total) for each in nearest]


def _told(run: FinishedJob) -> list[Stretch]:
    return [stretch for stretch in run.stretches if stretch.throughput and stretch.duration_s >= LEAST_STRETCH_S]


def _distance(job: Job, other: Job, prior: LearnedPrior) -> float:
    gap = (describe(job) - describe(other)) / prior.experience.scale
    return float(np.sqrt((gap**2).sum()))


def _age_days(run: FinishedJob, now: datetime) -> float:
    return max(0.0, (now - run.started_at).total_seconds() / 86_400) if run.started_at else _HALF_LIFE_DAYS


def _transferred(job: Job, curve: JobCurve, other: JobCurve, stretch: Stretch, run: FinishedJob, error: float) -> Trial:
    """What the stretch tells of the job at as many replicas of the same size, with the job's own batch size."""
    assert run.job is not None
    theirs, ours = _place(stretch.allocation, run.job), _place(stretch.allocation, job)
    beyond = np.log(stretch.throughput or 1.0) - float(other.log_rates([theirs])[0])
    rate = float(np.exp(float(curve.log_rates([ours])[0]) + beyond))
    return ours.model_copy(update={"throughput": rate, "throughput_se": rate * min(error, 1.0), "series": run.id})


def _place(a: Allocation, job: Job) -> Trial:
    workers, ps = a.replicas("worker"), a.replicas("ps")
    return Trial(
        workers=workers, ps=ps, worker_cpu=a.cores("worker") / workers, ps_cpu=a.cores("ps") / ps if ps else None,
        batch_size=job.training.batch_size, sync=job.training.sync, job=job.name, job_hash=job.hash,
    )  # fmt: skip
