"""Finished jobs like one that is to start, and what their runs showed beyond what was foretold of them.

How alike two jobs are is how far apart they lie in what the learned prior describes jobs by (logarithms of sizes in
standard deviations over the jobs that were measured, family and mode; `models/prior/experience.py`). A run that went
at r samples/s at an allocation where f is foretold of it shows log r − log f. Runs of one job at one allocation are
one showing: their mean, in which each half-life of age halves what a run counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from sizewright.datasets.finished import FinishedJob, Stretch
from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.spec import Allocation, Job

REACH = 2.5
"""Standard deviations: the throughput of jobs farther apart tells nothing of each other."""
RUN_SD = 0.05
"""Of a stretch's throughput about the truth of its job, in logarithms."""
HALF_LIFE_DAYS = 60.0
_MOST_JOBS, _MOST_SHOWINGS = 20, 8
_UNSOUND, _UNSOUND_AMONG, _SOME = np.log(20.0), np.log(4.0), 3


class Showing(NamedTuple):
    """At an allocation: so much faster than foretold, in logarithms, and its standard deviation."""

    place: Trial
    gap: float
    sd: float


class Similar(NamedTuple):
    """A finished job like the one that is to start."""

    job: Job
    distance: float
    runs: list[FinishedJob]
    showings: list[Showing]
    """The surest first; none where its runs tell no throughput, or it is beyond reach."""


def similar_jobs(job: Job, runs: Sequence[FinishedJob], prior: LearnedPrior, now: datetime) -> list[Similar]:
    """The nearest first, its own runs before all; none farther than the prior can tell of a job."""
    by_job: dict[str, list[FinishedJob]] = defaultdict(list)
    described: dict[str, Job] = {}
    for run in runs:
        if run.job is not None and run.job.model.tables.known:
            by_job[run.job.hash].append(run)
            described[run.job.hash] = run.job
    found = []
    for key, other in described.items():
        try:
            curve = prior.curve(other)
        except NotEnoughDataError:
            continue
        distance = prior.experience.distance(job, other)
        if distance <= prior.experience.limit:
            told = by_job[key] if distance <= REACH else []
            found.append(Similar(other, distance, by_job[key], list(_showings(other, told, curve, now))))
    return sorted(_sound(found), key=lambda each: each.distance)[:_MOST_JOBS]


def _showings(job: Job, runs: Sequence[FinishedJob], curve: JobCurve, now: datetime) -> Iterator[Showing]:
    told: dict[tuple[float | None, ...], list[tuple[Trial, float, float]]] = defaultdict(list)
    for run in runs:
        count = 0.5 ** (_age_days(run, now) / HALF_LIFE_DAYS)
        for stretch in _told(run):
            place = _place(stretch.allocation, job)
            gap = np.log(stretch.throughput or 1.0) - float(curve.log_rates([place])[0])
            told[place.workers, place.ps, place.worker_cpu, place.ps_cpu].append((place, gap, count))
    shown = []
    for same in told.values():
        (place, *_), gaps, counts = zip(*same, strict=True)
        sd = np.hypot(RUN_SD / np.sqrt(sum(counts)), float(curve.beyond_sd([place])[0]))
        shown.append(Showing(place, float(np.average(gaps, weights=counts)), float(sd)))
    yield from sorted(shown, key=lambda each: each.sd)[:_MOST_SHOWINGS]


def _told(run: FinishedJob) -> list[Stretch]:
    """Where memory ended a replica, the rate tells of restarts."""
    told = [] if run.ran_out_of_memory else run.stretches
    return [s for s in told if s.tells_speed and s.allocation.replicas("ps")]


def _age_days(run: FinishedJob, now: datetime) -> float:
    return max(0.0, (now - run.started_at).total_seconds() / 86_400) if run.started_at else HALF_LIFE_DAYS


def _place(a: Allocation, job: Job) -> Trial:
    workers, ps = a.replicas("worker"), a.replicas("ps")
    return Trial(
        workers=workers, ps=ps, worker_cpu=a.cores("worker") / workers, ps_cpu=a.cores("ps") / ps,
        batch_size=a.batch_size, sync=job.training.sync,
    )  # fmt: skip


def _sound(found: Sequence[Similar]) -> Iterator[Similar]:
    """Without what no job can show: hosts are not so many times as fast as others, nor one job as all the others."""
    gaps = [showing.gap for each in found for showing in each.showings]
    enough = sum(bool(each.showings) for each in found) >= _SOME
    centre, limit = (float(np.median(gaps)), _UNSOUND_AMONG) if enough else (0.0, _UNSOUND)
    for each in found:
        yield each._replace(showings=[s for s in each.showings if abs(s.gap - centre) <= limit])
