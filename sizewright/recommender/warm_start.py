"""What finished jobs like one that is to start tell of it, joined with what a learned prior foretells.

Of all jobs the prior's guess of the level (how much faster than physics) strays from the truth; jobs that are alike
stray alike, as the prior has learned (`Experience.together`), and all that ran on the same hosts do. So do the forms
of their curves about their levels, where allocations are near. With gaps g of runs over what was foretold of them,

    level += kᵀ C⁻¹ g      form(a) = fᵀ(a) C⁻¹ g      C = levels of the jobs + forms + what runs stray by

which weighs each run by its evidence: what a job has to itself is in all of its runs, so that many of them count
hardly more than a few. Stage one of DLRover-RM smooths the allocations of similar jobs instead; these were often
asked for wrongly, and jobs of one shape with other batches want others. What runs tell makes the throughput foretold
much surer, and memory; the choice by time × cost hardly changes (`make bench NAME=warm_start`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.models.prior.warm import WarmCurve, log_places
from sizewright.models.residual import matern
from sizewright.recommender.similar import Similar, similar_jobs
from sizewright.recommender.similar_memory import NONE, SimilarMemory, memory_of
from sizewright.spec import Job, SimilarJob
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]

_HOSTS_SD = 0.3
"""Of how much faster hosts are than those that the prior was learned on, in logarithms."""
_FORM_SHARED = 0.5
"""Of the variance by which forms stray from what is foretold: over the bank's jobs they correlate by so much."""
_CONTRADICTED = 3.0
"""Standard deviations from what the job's own trials say."""
_NAMED = 5


class WarmStart(NamedTuple):
    """What runs of jobs like it tell of a job; nothing where there are none."""

    curve: JobCurve | None = None
    similar: tuple[SimilarJob, ...] = ()
    memory: SimilarMemory = NONE
    doubts: tuple[str, ...] = ()

    def told(self, own_trials: int) -> Iterator[str]:
        """In sentences: which jobs, and how much each counted; that it is a cold start where there is nothing else."""
        yield from self.doubts
        if self.similar:
            runs = sum(each.runs for each in self.similar)
            surest = sorted(self.similar, key=lambda each: -each.weight)
            names = ", ".join(f"{each.name} ({each.weight:.0%})" for each in surest[:_NAMED])
            more = f" and {len(surest) - _NAMED} more" if len(surest) > _NAMED else ""
            jobs = format_count(len(surest), "job")
            yield f"Warm start from {format_count(runs, 'run')} of {jobs} like it: {names}{more}."
        elif not own_trials:
            yield "A cold start: no run of a job like it tells its throughput, so it is as the prior has it."

    def without_memory(self) -> WarmStart:
        """Where no allocation has as much as jobs like it took."""
        doubt = "The bounds do not allow the memory that jobs like it took, so that is left out."
        return self._replace(memory=NONE, doubts=(*self.doubts, doubt))


def warm_start(
    job: Job, history: Sequence[FinishedJob], prior: LearnedPrior, foretold: JobCurve, trials: Sequence[Trial],
    now: datetime | None = None,
) -> WarmStart:  # fmt: skip
    """From runs of all jobs. What contradicts the job's own `trials` is left out with a reason."""
    found = similar_jobs(job, history, prior, now or datetime.now(timezone.utc))
    memory = memory_of(job, found)
    showing = [each for each in found if each.showings]
    if not showing:
        return WarmStart(None, (), memory)
    curve, weights = _joined(job, showing, prior, foretold)
    against = _contradicted(trials, curve, foretold)
    if against:
        return WarmStart(None, (), memory, (against,))
    told = [
        SimilarJob(name=each.job.name, runs=len(each.runs), distance=each.distance, weight=weight)
        for each, weight in zip(showing, weights, strict=True)
    ]
    return WarmStart(curve, tuple(told), memory)


def _joined(
    job: Job, found: Sequence[Similar], prior: LearnedPrior, foretold: JobCurve
) -> tuple[WarmCurve, list[float]]:
    """The curve foretold, corrected by kriging, and the share (j,) of each job in what moves its level."""
    showings = [showing for each in found for showing in each.showings]
    of = np.repeat(np.arange(1, len(found) + 1), [len(each.showings) for each in found])
    alike, covariance = prior.experience.together([job, *(each.job for each in found)])
    levels = prior.widen**2 * covariance + _HOSTS_SD**2
    seen = log_places([showing.place for showing in showings])
    forms = (prior.widen * prior.form_sd) ** 2 * (_FORM_SHARED * alike + (1 - _FORM_SHARED) * np.eye(len(alike)))
    strayed = np.diag([showing.sd**2 for showing in showings])
    c = levels[np.ix_(of, of)] + forms[np.ix_(of, of)] * matern(seen, seen) + strayed
    gaps = np.array([showing.gap for showing in showings])
    moves, pulls = np.linalg.solve(c, np.column_stack([levels[0, of], gaps])).T
    sd = np.sqrt(max(levels[0, 0] - float(moves @ levels[0, of]), 0.0)) / prior.widen
    guess = foretold.guess._replace(level=foretold.guess.level + float(moves @ gaps), sd=float(sd))
    plain = {field.name: getattr(foretold, field.name) for field in fields(foretold)} | {"guess": guess}
    shares = np.maximum(np.bincount(of, moves)[1:], 0.0)
    return WarmCurve(**plain, seen=seen, pull=forms[0, of] * pulls), list(shares / shares.sum())


def _contradicted(trials: Sequence[Trial], warm: JobCurve, foretold: JobCurve) -> str:
    """Why the job's own trials, which tell all that a model takes, cannot be as runs of jobs like it tell."""
    rates = [trial for trial in trials if trial.throughput]
    if not rates:
        return ""
    logs = np.log([trial.throughput or 1.0 for trial in rates])
    gap, before = (float(np.median(logs - curve.log_rates(rates))) for curve in (warm, foretold))
    if abs(gap) <= max(_CONTRADICTED * float(np.median(warm.sd(rates))), abs(before)):
        return ""
    return (
        f"Runs of jobs like it are left out: the job's own {format_count(len(rates), 'trial')} went "
        f"{np.exp(gap):.2g} times as fast as they tell."
    )
