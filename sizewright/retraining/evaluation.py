"""How well a prior foretells jobs: errors, regret of its choice, rank within a job, and what its intervals hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr

from sizewright.datasets.bank.noise import repeat_noise, usual_speed_factors
from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models.prior import LearnedPrior
from sizewright.profiler.candidates import table_price
from sizewright.retraining.lessons import Lessons
from sizewright.spec.objective import log_objective, regret

Floats = NDArray[np.float64]

_PLACE = ("workers", "ps", "worker_cpu", "ps_cpu", "batch_size", "table_scale")
_LEAST_PLACES = 3  # fewer allocations tell neither rank nor regret
_NORMAL = 1.645  # of a 90 % interval
_MOST_FOLDS, _MOST_TRIALS_A_FOLD = 8, 2000


class JobScore(NamedTuple):
    """Of one job. What the prior refuses has the reason and ratios of 0: it tells nothing."""

    job: str
    base: str
    family: str
    ratios: tuple[float, ...]
    """Of foretold to measured samples/s, for each trial."""
    measured: tuple[float, ...]
    foretold: tuple[float, ...]
    held: float
    regret: float
    rank: float
    refused: str = ""

    @property
    def errors(self) -> tuple[float, ...]:
        """Of its trials: how far ratios are from 1."""
        return tuple(abs(ratio - 1) for ratio in self.ratios)

    @property
    def mdape(self) -> float:
        """Median error of its trials."""
        return float(np.median(self.errors))


class Measured(NamedTuple):
    """Distinct allocations of a job, each by its first trial, and their throughput (n,) at the host's usual speed."""

    places: list[Trial]
    rates: Floats
    counts: list[int]
    """Of how many trials each is the mean."""


def measured(lessons: Lessons) -> dict[str, Measured]:
    """By job."""
    factors = usual_speed_factors(lessons.trials, repeat_noise(lessons.trials).exponent)
    rates: dict[tuple[object, ...], list[float]] = {}
    first: dict[tuple[object, ...], Trial] = {}
    for trial, factor in zip(lessons.trials, factors, strict=True):
        if trial.usable and trial.job_hash in lessons.jobs:
            place = (trial.job_hash, *(getattr(trial, axis) for axis in _PLACE))
            first.setdefault(place, trial)
            rates.setdefault(place, []).append(np.log(trial.throughput or 0.0) + np.log(factor))
    found = {key: Measured([], np.empty(0), []) for key in lessons.jobs}
    for key, group in itertools.groupby(
        sorted(first, key=lambda place: str(place[0])), key=lambda place: str(place[0])
    ):
        places = list(group)
        found[key] = Measured(
            [first[p] for p in places], np.exp([np.mean(rates[p]) for p in places]), [len(rates[p]) for p in places]
        )
    return found


def score_prior(prior: LearnedPrior, lessons: Lessons, truth: dict[str, Measured] | None = None) -> list[JobScore]:
    """Of each job in the lessons."""
    truth = measured(lessons) if truth is None else truth
    scores = []
    for key, job in lessons.jobs.items():
        places, rates, counts = truth[key]
        if not places:
            continue
        about = (job.job.name, job.base, job.job.model.family)
        try:
            curve = prior.curve(job.job, job.table_scale)
        except NotEnoughDataError as error:
            nothing = (0.0,) * sum(counts)
            nan = float("nan")
            scores.append(JobScore(*about, nothing, tuple(rates), (), nan, nan, nan, error.message))
            continue
        logs = curve.log_rates(places)
        foretold = np.exp(logs)
        ratios = tuple(np.repeat(foretold / rates, counts).tolist())
        held = float(np.mean(np.abs(np.log(rates) - logs) <= _NORMAL * curve.sd(places)))
        regret, rank = choice(places, rates, logs)
        scores.append(JobScore(*about, ratios, tuple(rates), tuple(foretold), held, regret, rank))
    return scores


def choice(places: Sequence[Trial], rates: Floats, log_foretold: Floats) -> tuple[float, float]:
    """Regret by time × cost of choosing where the most is foretold, and rank correlation; NaN of too few places."""
    if len(places) < _LEAST_PLACES:
        return float("nan"), float("nan")
    frame = pd.DataFrame([t.model_dump(include={"workers", "ps", "worker_cpu", "ps_cpu"}) for t in places])
    log_price = np.log(table_price(frame, None))
    truth = log_objective("balanced", np.log(rates), log_price)
    pick = int(np.argmin(log_objective("balanced", log_foretold, log_price)))
    return float(regret("balanced", truth[pick] - truth.min())), float(spearmanr(log_foretold, rates).statistic)


def leave_out(
    lessons: Lessons, by: Callable[[str], str], fold: int, folds: int, truth: dict[str, Measured] | None = None
) -> list[JobScore]:
    """Scores of the jobs in one fold, by a prior that has learned from those of no group in it.

    `by` tells the group of a job's hash. Each fold learns from at most 2,000 trials.
    """
    truth = measured(lessons) if truth is None else truth
    groups = sorted({by(key) for key in lessons.jobs})
    mine = {key for key in lessons.jobs if groups.index(by(key)) % folds == fold}
    known = {key: job for key, job in lessons.jobs.items() if key not in mine}
    trials = [t for t in lessons.trials if t.job_hash in known]
    trials = trials[:: -(-len(trials) // _MOST_TRIALS_A_FOLD) or 1]
    asked = {key: job for key, job in lessons.jobs.items() if key in mine}
    return score_prior(LearnedPrior.fit(trials, known), lessons._replace(jobs=asked), truth)


def folds_of(groups: int) -> int:
    """Into how many folds so many groups are put."""
    return min(groups, _MOST_FOLDS)


def summary(scores: Iterable[JobScore]) -> dict[str, float]:
    """Median error over all trials; means over jobs of their median error, regret, rank and coverage; and how many
    were refused."""
    scores = list(scores)
    told = [score for score in scores if not score.refused]
    errors = list(itertools.chain(*(score.errors for score in scores)))
    return {
        "mdape": float(np.median(errors)) if errors else float("nan"),
        "job_mdape": _mean([score.mdape for score in scores]),
        "regret": _mean([score.regret for score in told]),
        "rank": _mean([score.rank for score in told]),
        "coverage": _mean([score.held for score in told]),
        "refused": float(len(scores) - len(told)),
        "jobs": float(len(scores)),
    }


def by_family(scores: Iterable[JobScore]) -> dict[str, dict[str, float]]:
    """A summary for each family."""
    scores = list(scores)
    return {family: summary(s for s in scores if s.family == family) for family in sorted({s.family for s in scores})}


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")
