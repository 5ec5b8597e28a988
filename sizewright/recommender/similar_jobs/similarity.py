"""Finished jobs that are similar to a new one, and how their runs deviated from the prediction of the prior.

The distance of two jobs is that of their features in the learned prior (logarithms of sizes in standard deviations over
the measured jobs, family and mode; `models/prior/job_effects.py`). A run with r samples/s at an allocation where f is
predicted has the residual log r − log f. Runs of one job at one allocation are averaged; the weight of a run halves
with each half-life of its age.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from sizewright.datasets.runs.finished_job import FinishedJob, Segment
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.models.prior.plausible_range import plausible_range
from sizewright.spec import Allocation, Job

REACH = 2.5
"""Distance, in standard deviations, up to which the throughput of one job is evidence for another."""
RUN_SD = 0.05
"""Standard deviation of the log throughput of a segment around that of its job."""
HALF_LIFE_DAYS = 60.0
_MAX_JOBS = 20
_MAX_RESIDUALS = 8
"""Per job."""


class RunResidual(NamedTuple):
    """The log ratio of measured to predicted throughput of runs at an allocation, and its standard deviation."""

    allocation: Trial
    residual: float
    sd: float
    runs: frozenset[int] = frozenset()
    """The runs of the neighbour that this averages."""


class Neighbour(NamedTuple):
    """A finished job that is similar to the new one."""

    job: Job
    distance: float
    runs: list[FinishedJob]
    residuals: list[RunResidual]
    """The most certain first; empty if no run has a usable throughput, or the job is out of reach."""

    @property
    def used_runs(self) -> int:
        """Number of runs whose throughput is in the residuals."""
        return len(frozenset[int]().union(*(each.runs for each in self.residuals)))


def similar_jobs(job: Job, runs: Sequence[FinishedJob], prior: LearnedPrior, now: datetime) -> list[Neighbour]:
    """Return the finished jobs nearest to a job, the nearest first.

    The job itself is among them, at distance 0, if it ran before: its earlier runs count as those of a job that is
    most similar, since hosts and data may have changed. Jobs beyond the limit that the prior supports are not returned.
    """
    runs_of: dict[str, list[FinishedJob]] = defaultdict(list)
    job_of: dict[str, Job] = {}
    for run in runs:
        if run.job is not None and run.job.model.tables.known:
            runs_of[run.job.hash].append(run)
            job_of[run.job.hash] = run.job
    neighbours = []
    for key, other in job_of.items():
        try:
            curve = prior.curve(other)
        except NotEnoughDataError:
            continue
        distance = prior.job_effects.distance(job, other)
        if distance <= prior.job_effects.max_distance:
            residuals = _residuals(other, runs_of[key], curve, now) if distance <= REACH else []
            neighbours.append(Neighbour(other, distance, runs_of[key], residuals))
    return sorted(_without_outliers(neighbours), key=lambda neighbour: neighbour.distance)[:_MAX_JOBS]


def _residuals(job: Job, runs: Sequence[FinishedJob], curve: JobCurve, now: datetime) -> list[RunResidual]:
    """Return one residual for each allocation of the runs, the most certain first."""
    at_allocation: dict[tuple[float | None, ...], list[tuple[Trial, float, float, int]]] = defaultdict(list)
    for number, run in enumerate(runs):
        weight = 0.5 ** (_age_days(run, now) / HALF_LIFE_DAYS)
        for segment in _usable_segments(run):
            row = _as_row(segment.allocation, job)
            residual = np.log(segment.throughput or 1.0) - float(curve.log_rates([row])[0])
            at_allocation[row.workers, row.ps, row.worker_cpu, row.ps_cpu].append((row, residual, weight, number))
    residuals = []
    for observations in at_allocation.values():
        (row, *_), values, weights, numbers = zip(*observations, strict=True)
        sd = np.hypot(RUN_SD / np.sqrt(sum(weights)), float(curve.extrapolation_sd([row])[0]))
        residual = float(np.average(values, weights=weights))
        residuals.append(RunResidual(row, residual, float(sd), frozenset(numbers)))
    return sorted(residuals, key=lambda each: each.sd)[:_MAX_RESIDUALS]


def _usable_segments(run: FinishedJob) -> list[Segment]:
    """Return the segments with a throughput; none after an OOM kill, since restarts then slow a run down."""
    segments = [] if run.ran_out_of_memory else run.stretches
    return [segment for segment in segments if segment.has_reliable_throughput and segment.allocation.replicas("ps")]


def _age_days(run: FinishedJob, now: datetime) -> float:
    return max(0.0, (now - run.started_at).total_seconds() / 86_400) if run.started_at else HALF_LIFE_DAYS


def _as_row(allocation: Allocation, job: Job) -> Trial:
    workers, ps = allocation.replicas("worker"), allocation.replicas("ps")
    return Trial(
        workers=workers,
        ps=ps,
        worker_cpu=allocation.cores("worker") / workers,
        ps_cpu=allocation.cores("ps") / ps,
        batch_size=allocation.batch_size,
        sync=job.training.sync,
    )


def _without_outliers(neighbours: Sequence[Neighbour]) -> Iterator[Neighbour]:
    """Drop implausible residuals: hosts differ by a smaller factor, and so does one job from all the others."""
    residuals = [each.residual for neighbour in neighbours for each in neighbour.residuals]
    median, limit = plausible_range(residuals, sum(bool(neighbour.residuals) for neighbour in neighbours))
    for neighbour in neighbours:
        plausible = [each for each in neighbour.residuals if abs(each.residual - median) <= limit]
        yield neighbour._replace(residuals=plausible)
