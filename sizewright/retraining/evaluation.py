"""Evaluation of a prior on jobs: errors, regret of its choice, rank correlation, and coverage of its intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr

from sizewright.datasets.trial_bank.noise import is_steady, median_speed_factors, repeat_noise
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models.host_state import at_mean_state
from sizewright.models.prior import LearnedPrior
from sizewright.profiler.planner.candidates import table_price
from sizewright.retraining.lessons import Lessons
from sizewright.spec.objective import log_objective, regret

Floats = NDArray[np.float64]

_ALLOCATION_FIELDS = ("workers", "ps", "worker_cpu", "ps_cpu", "batch_size", "table_scale")
_RATE_WEIGHT = 2.0  # how much the logarithm of time × cost changes with that of the throughput
_MIN_ALLOCATIONS = 3  # fewer determine neither rank nor regret
_NORMAL_QUANTILE = 1.645  # of a 90 % interval
_MAX_FOLDS, _MAX_TRIALS_PER_FOLD = 8, 2000


class JobScore(NamedTuple):
    """The score of one job. A job that the prior cannot predict has a reason in `refused`, and ratios of 0."""

    job: str
    base: str
    family: str
    ratios: tuple[float, ...]
    """Predicted over measured samples/s, of each trial."""
    measured: tuple[float, ...]
    """Samples/s of each allocation."""
    predicted: tuple[float, ...]
    coverage: float
    """Share of allocations within the 90 % interval."""
    regret: float
    rank: float
    refused: str = ""

    @property
    def errors(self) -> tuple[float, ...]:
        """Relative errors of its trials."""
        return tuple(abs(ratio - 1) for ratio in self.ratios)

    @property
    def mdape(self) -> float:
        """Median of `errors`."""
        return float(np.median(self.errors))


class MeasuredRates(NamedTuple):
    """The throughput of the distinct allocations of a job, at the host's usual speed."""

    first_trials: list[Trial]
    """The first trial of each allocation."""
    rates: Floats
    """Mean samples/s (n,)."""
    counts: list[int]
    """Number of trials of each allocation."""


def measured_rates(lessons: Lessons) -> dict[str, MeasuredRates]:
    """Return the measured throughput of each job, by its hash."""
    trials = at_mean_state(lessons.trials)
    factors = median_speed_factors(trials, repeat_noise(trials).exponent)
    rates: dict[tuple[object, ...], list[float]] = {}
    first: dict[tuple[object, ...], Trial] = {}
    for trial, factor in zip(trials, factors, strict=True):
        if trial.usable and is_steady(trial) and trial.job_hash in lessons.jobs:
            allocation = (trial.job_hash, *(getattr(trial, axis) for axis in _ALLOCATION_FIELDS))
            first.setdefault(allocation, trial)
            rates.setdefault(allocation, []).append(np.log(trial.throughput or 0.0) + np.log(factor))
    by_job: dict[str, list[tuple[object, ...]]] = {key: [] for key in lessons.jobs}
    for allocation in first:
        by_job[str(allocation[0])].append(allocation)
    return {
        key: MeasuredRates(
            first_trials=[first[allocation] for allocation in allocations],
            rates=np.exp([np.mean(rates[allocation]) for allocation in allocations]),
            counts=[len(rates[allocation]) for allocation in allocations],
        )
        for key, allocations in by_job.items()
    }


def score_prior(prior: LearnedPrior, lessons: Lessons, truth: dict[str, MeasuredRates] | None = None) -> list[JobScore]:
    """Return the score of each job in the lessons that was measured."""
    truth = measured_rates(lessons) if truth is None else truth
    scores = []
    for key, job in lessons.jobs.items():
        first_trials, rates, counts = truth[key]
        if not first_trials:
            continue
        identity = (job.job.name, job.base, job.job.model.family)
        try:
            curve = prior.curve(job.job, job.table_scale)
        except NotEnoughDataError as error:
            ratios = (0.0,) * sum(counts)
            nan = float("nan")
            scores.append(JobScore(*identity, ratios, tuple(rates), (), nan, nan, nan, error.message))
            continue
        log_predicted = curve.log_rates(first_trials)
        predicted = np.exp(log_predicted)
        ratios = tuple(np.repeat(predicted / rates, counts).tolist())
        coverage = float(np.mean(np.abs(np.log(rates) - log_predicted) <= _NORMAL_QUANTILE * curve.sd(first_trials)))
        regret, rank = regret_and_rank(first_trials, rates, log_predicted)
        scores.append(JobScore(*identity, ratios, tuple(rates), tuple(predicted), coverage, regret, rank))
    return scores


def regret_and_rank(
    trials: Sequence[Trial], rates: Floats, log_predicted: Floats, sd: Floats | float = 0.0
) -> tuple[float, float]:
    """Return the regret (time × cost) of choosing by the prediction, and the rank correlation.

    `sd` (n,) are the standard deviations of the logarithms of the measured rates. A choice that they cannot tell from
    the best one has no regret. Both are NaN for fewer than three allocations.
    """
    if len(trials) < _MIN_ALLOCATIONS:
        return float("nan"), float("nan")
    frame = pd.DataFrame([t.model_dump(include={"workers", "ps", "worker_cpu", "ps_cpu"}) for t in trials])
    log_price = np.log(table_price(frame, None))
    truth = log_objective("balanced", np.log(rates), log_price)
    pick = int(np.argmin(log_objective("balanced", log_predicted, log_price)))
    best = int(np.argmin(truth))
    sd = np.broadcast_to(sd, len(rates))
    excess = truth[pick] - truth[best]
    if excess < _RATE_WEIGHT * np.hypot(sd[pick], sd[best]):
        excess = 0.0
    return float(regret("balanced", excess)), float(spearmanr(log_predicted, rates).statistic)


def leave_out(
    lessons: Lessons, by: Callable[[str], str], fold: int, folds: int, truth: dict[str, MeasuredRates] | None = None
) -> list[JobScore]:
    """Return the scores of the jobs in one fold, by a prior learned from the jobs of all other groups.

    `by` maps the hash of a job to its group. Each fold learns from at most 2,000 trials.
    """
    truth = measured_rates(lessons) if truth is None else truth
    groups = sorted({by(key) for key in lessons.jobs})
    in_fold = {key for key in lessons.jobs if groups.index(by(key)) % folds == fold}
    known = {key: job for key, job in lessons.jobs.items() if key not in in_fold}
    trials = [t for t in lessons.trials if t.job_hash in known]
    trials = trials[:: -(-len(trials) // _MAX_TRIALS_PER_FOLD) or 1]
    scored = {key: job for key, job in lessons.jobs.items() if key in in_fold}
    return score_prior(LearnedPrior.fit(trials, known), lessons._replace(jobs=scored), truth)


def folds_of(groups: int) -> int:
    """Return the number of folds for a number of groups."""
    return min(groups, _MAX_FOLDS)


def summary(scores: Iterable[JobScore]) -> dict[str, float]:
    """Return the median error over all trials, means over jobs, and the number of refused jobs.

    The means are those of median error, regret, rank and coverage.
    """
    scores = list(scores)
    predicted = [score for score in scores if not score.refused]
    errors = list(itertools.chain(*(score.errors for score in scores)))
    return {
        "mdape": float(np.median(errors)) if errors else float("nan"),
        "job_mdape": _mean([score.mdape for score in scores]),
        "regret": _mean([score.regret for score in predicted]),
        "rank": _mean([score.rank for score in predicted]),
        "coverage": _mean([score.coverage for score in predicted]),
        "refused": float(len(scores) - len(predicted)),
        "jobs": float(len(scores)),
    }


def by_family(scores: Iterable[JobScore]) -> dict[str, dict[str, float]]:
    """Return a summary for each family."""
    scores = list(scores)
    return {family: summary(s for s in scores if s.family == family) for family in sorted({s.family for s in scores})}


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")
