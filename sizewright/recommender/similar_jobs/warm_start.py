"""Warm start: combine the prediction of a learned prior with the runs of similar finished jobs.

The log offset of a job is the logarithm of how much faster it is than the mechanistic model predicts. The prior's
prediction of it deviates from the truth; the deviations of similar jobs correlate, as the prior has learned
(`JobEffects.similarity`), and those of all jobs on the same hosts do. So do the shapes of their curves, at allocations
that are near. With the residuals g of runs, the prediction is corrected by kriging:

    offset += kᵀ C⁻¹ g      shape(a) = fᵀ(a) C⁻¹ g      C = offsets of the jobs + shapes + variance of the runs

This weighs each run by its evidence: the part that is specific to a job is in all of its runs, so many runs of one job
count hardly more than a few. Stage one of DLRover-RM smooths the allocations of similar jobs instead; these were often
requested wrongly, and jobs of one shape with other batch sizes need others. Runs make the predicted throughput and
memory much more certain; the choice by time × cost hardly changes (`make bench NAME=warm_start`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from typing import NamedTuple

import numpy as np

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.models.matern import matern
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.models.prior.curve import WarmCurve, log_allocations
from sizewright.recommender.similar_jobs.memory import NONE, SimilarMemory, similar_memory
from sizewright.recommender.similar_jobs.similarity import Neighbour, similar_jobs
from sizewright.spec import Job, SimilarJob
from sizewright.spec.reason import Reason

_HOSTS_SD = 0.3
"""Standard deviation of the log speed of hosts relative to those that the prior was learned on."""
_SHAPE_CORRELATION = 0.5
"""Share of the variance of shapes that similar jobs have in common: their correlation over the bank's jobs."""
_MAX_DEVIATION = 3.0
"""Of the corrected curve from the job's own trials, in standard deviations."""
_MAX_NAMED = 5


class WarmStart(NamedTuple):
    """The evidence that runs of similar jobs add to the prior; empty if there are none."""

    curve: JobCurve | None = None
    similar: tuple[SimilarJob, ...] = ()
    memory: SimilarMemory = NONE
    run_doubts: tuple[Reason, ...] = ()
    own: SimilarJob | None = None
    """The job itself, which is among the `similar` if it ran before."""

    def reasons(self, own_trials: int) -> Iterator[Reason]:
        """Yield which jobs were used and their weights, or that it is a cold start if the job has no trials either."""
        yield from self.run_doubts
        if self.similar:
            others = sorted((job for job in self.similar if job is not self.own), key=lambda job: -job.weight)
            reason = Reason.of(
                "warm_start",
                runs=sum(job.runs for job in others),
                jobs=len(others),
                own_runs=self.own.runs if self.own else None,
                own_weight=self.own.weight if self.own else None,
            )
            yield reason.adding_each("job", [job.model_dump(include={"name", "weight"}) for job in others[:_MAX_NAMED]])
        elif not own_trials:
            yield Reason.of("cold_start")

    def without_memory(self) -> WarmStart:
        """Return the warm start without the memory evidence, because no allocation has as much memory."""
        return self._replace(memory=NONE, run_doubts=(*self.run_doubts, Reason.of("similar_memory_ignored")))


def warm_start(
    job: Job,
    history: Sequence[FinishedJob],
    prior: LearnedPrior,
    curve: JobCurve,
    trials: Sequence[Trial],
    now: datetime | None = None,
) -> WarmStart:
    """Correct the `curve` that a prior predicts for a job by the runs in `history`, which may be of any jobs.

    Runs that contradict the job's own `trials` are ignored; the result says so. Trials have their cores and batch size.
    """
    neighbours = similar_jobs(job, history, prior, now or datetime.now(timezone.utc))
    memory = similar_memory(job, neighbours)
    with_residuals = [neighbour for neighbour in neighbours if neighbour.residuals]
    if not with_residuals:
        return WarmStart(memory=memory)
    warm_curve, weights = _corrected(job, with_residuals, prior, curve)
    contradiction = _contradiction(trials, warm_curve, curve)
    if contradiction:
        return WarmStart(memory=memory, run_doubts=(contradiction,))
    similar = tuple(
        SimilarJob(name=each.job.name, runs=each.used_runs, distance=each.distance, weight=weight)
        for each, weight in zip(with_residuals, weights, strict=True)
    )
    own = next((used for used, each in zip(similar, with_residuals, strict=True) if each.job.hash in job.hashes), None)
    return WarmStart(warm_curve, similar, memory, own=own)


def _corrected(
    job: Job, neighbours: Sequence[Neighbour], prior: LearnedPrior, curve: JobCurve
) -> tuple[WarmCurve, list[float]]:
    """Return the curve corrected by kriging, and the weight (j,) of each neighbour in the correction of the offset."""
    observations = [each for neighbour in neighbours for each in neighbour.residuals]
    residuals = np.array([each.residual for each in observations])
    # Row 0 of the matrices is the new job; observation i belongs to row job_of[i].
    job_of = np.repeat(np.arange(1, len(neighbours) + 1), [len(each.residuals) for each in neighbours])
    similarity, covariance = prior.job_effects.similarity([job, *(each.job for each in neighbours)])
    offset_covariance = prior.calibration_factor**2 * covariance + _HOSTS_SD**2
    shared = _SHAPE_CORRELATION * similarity + (1 - _SHAPE_CORRELATION) * np.eye(len(similarity))
    shapes = (prior.calibration_factor * prior.shape_sd) ** 2 * shared
    at = log_allocations([each.allocation for each in observations])
    noise = np.diag([each.sd**2 for each in observations])
    of_pair = np.ix_(job_of, job_of)
    total = offset_covariance[of_pair] + shapes[of_pair] * matern(at, at) + noise

    offset_weights, shape_weights = np.linalg.solve(total, np.column_stack([offset_covariance[0, job_of], residuals])).T
    variance = offset_covariance[0, 0] - float(offset_weights @ offset_covariance[0, job_of])
    effect = curve.effect._replace(
        log_offset=curve.effect.log_offset + float(offset_weights @ residuals),
        sd=float(np.sqrt(max(variance, 0.0)) / prior.calibration_factor),
    )
    unchanged = {field.name: getattr(curve, field.name) for field in fields(curve)}
    warm_curve = WarmCurve(**unchanged | {"effect": effect}, allocations=at, weights=shapes[0, job_of] * shape_weights)
    shares = np.maximum(np.bincount(job_of, offset_weights)[1:], 0.0)
    return warm_curve, list(shares / shares.sum())


def _contradiction(trials: Sequence[Trial], warm_curve: JobCurve, curve: JobCurve) -> Reason | None:
    """Return a reason if the job's own trials contradict the corrected curve more than the original one, else None."""
    measured = [trial for trial in trials if trial.throughput]
    if not measured:
        return None
    logs = np.log([trial.throughput or 1.0 for trial in measured])
    deviation = float(np.median(logs - warm_curve.log_rates(measured)))
    deviation_before = float(np.median(logs - curve.log_rates(measured)))
    if abs(deviation) <= max(_MAX_DEVIATION * float(np.median(warm_curve.sd(measured))), abs(deviation_before)):
        return None
    return Reason.of("similar_runs_ignored", trials=len(measured), ratio=float(np.exp(deviation)))
