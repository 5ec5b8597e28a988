"""Choose which allocation to measure next, until another trial is not worth its cost.

The first trials are far apart. Then curves are drawn from the model (`BaseThroughputModel.curves`), and the next trial
is the candidate with the largest expected improvement over the measured ones (Mockus 1975; over whole curves, so that
neighbours share the information of a trial). The best allocation is the one with the lowest mean regret over the
curves. Planning stops when the expected improvement of the best next trial is below its cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models._base import CURVES, BaseThroughputModel
from sizewright.models.axes import MIN_ALLOCATIONS
from sizewright.models.factory import make_predictor
from sizewright.profiler.planner.candidates import AllocationRow, CandidateSet
from sizewright.profiler.planner.feasible import success_probability
from sizewright.profiler.planner.objective import SHORTFALL_WEIGHT, Goal, check_objective
from sizewright.profiler.planner.trial_log import TrialLog
from sizewright.spec import Prices

Floats = NDArray[np.float64]

FIRST_TRIALS = 4
"""Trials that fill the space before the model chooses; also the minimum, where the cost of a trial is known."""
MIN_TRIALS = 6
"""Minimum number of trials where the cost of a trial is unknown."""
MIN_TRIALS_WITH_PRIOR = 2
"""Minimum number of trials where the model predicts before any trial."""
MAX_FAILURES = 8
"""Consecutive failures after which planning stops."""
PLAUSIBLE_SHARE = 0.85
"""Share of the candidates, by expected regret, that the first trials are chosen from."""
MIN_SUCCESS_PROBABILITY = 0.8
"""Of a recommended allocation, once trials have failed."""
MIN_GAIN = 0.002
"""Expected improvement of the objective that justifies trial number `MIN_TRIALS` + 1 where samples or seconds are
unknown. It doubles with each further trial, and halves with each one before (where a prior allows fewer)."""


class TrialPlanner:
    """Plan trials: ask for an allocation and tell its throughput until `ask` returns None; `best` is the result.

    A failed trial is told with throughput 0 or NaN; it counts, and its allocation is not asked for again.

    Parameters
    ----------
    candidates
        Allocations in columns of the trial table; `workers` and `ps` are required.
    objective
        `time`, `cost`, `balanced` or `deadline`. `deadline` requires the throughput that `deadline_s` and
        `samples_left` imply; without these, 80 % of the best throughput.
    prices
        Currency per hour. Default: 1 per core-hour, 0.13 per GiB-hour and 10 per GPU-hour; 1 per replica-hour if only
        counts are known.
    samples_left, trial_seconds
        Samples that remain to be trained and seconds that a trial takes; they determine what a trial is worth.
    seed
        Seed of the posterior draws.
    max_trials
        Maximum number of trials.
    deadline_s
        Seconds until the deadline.
    predictor
        The model that plans. Default: `make_predictor(min_allocations=1)`. If it predicts before any trial
        (`min_trials` is 0, as with a learned prior), the first trial is where it expects the best allocation, and
        `best` works before any trial.
    shortfall_weight
        Without a deadline, `deadline` asks for 80 % of the best throughput. This is the weight of throughput that is
        missing for it, relative to cost: a larger one gives choices that fall short less often, and cost more.

    Raises
    ------
    InputError
        If the candidates are not a table of allocations, or a number is out of range.
    """

    def __init__(
        self,
        candidates: pd.DataFrame,
        objective: str = "balanced",
        prices: Prices | Mapping[str, float] | None = None,
        samples_left: float | None = None,
        trial_seconds: float | None = None,
        seed: int = 0,
        max_trials: int | None = None,
        *,
        deadline_s: float | None = None,
        predictor: BaseThroughputModel | None = None,
        shortfall_weight: float = SHORTFALL_WEIGHT,
    ) -> None:
        _check_integers(seed=seed, max_trials=0 if max_trials is None else max_trials)
        _check_positive(samples_left=samples_left, trial_seconds=trial_seconds, deadline_s=deadline_s)
        _check_positive(shortfall_weight=shortfall_weight)
        if deadline_s and not samples_left:
            raise InputError("deadline_s requires samples_left.", "Pass the number of remaining samples.")
        self.candidates = CandidateSet(candidates, prices)
        needed = samples_left / deadline_s if samples_left and deadline_s else None
        self.goal = Goal(check_objective(objective), self.candidates.hourly_price, needed, shortfall_weight)
        self.samples_left = samples_left
        self.trial_seconds = trial_seconds
        self.max_trials = max_trials
        self.seed = seed
        self.predictor = make_predictor(min_allocations=1, seed=seed) if predictor is None else predictor
        if not isinstance(self.predictor, BaseThroughputModel):
            raise InputError(f"{predictor!r} is not a throughput model.", "Pass a model, such as get_model(name).")
        self._predicts_before_trials = self.predictor.min_trials == 0
        self._rng = np.random.default_rng(seed)
        self._log = TrialLog(self.candidates)
        # Cached until the next trial is told:
        self._next: int | None = None
        self._decided = False
        self._log_curves: Floats | None = None
        self._probabilities: Floats | None = None

    @property
    def trials(self) -> pd.DataFrame:
        """The trials that were told, one row each."""
        return self._log.frame

    def ask(self) -> AllocationRow | None:
        """Return a candidate to measure, or None if another trial is not worth it; the same until a trial is told."""
        if not self._decided:
            self._next, self._decided = self._decide(), True
        return None if self._next is None else self.candidates.allocation(self._next)

    def tell(self, allocation: Mapping[str, object], throughput: float | None, **more: object) -> None:
        """Record a trial: its samples/s, and any other column of the trial table.

        Raises InputError for an infinite or negative throughput, or an allocation unlike the candidates.
        """
        self._log.add(allocation, throughput, more)
        self._decided = False
        self._log_curves = None
        self._probabilities = None

    def best(self) -> AllocationRow:
        """Return the candidate with the lowest expected regret, measured or not.

        Below three distinct measured allocations it is the best of these, unless the model predicts before any trial.
        Raises NotEnoughDataError if no trial has succeeded, or fewer than three and none of a candidate.
        """
        curves, distinct = self._fitted_curves(), self._log.distinct()
        if curves is not None and (distinct >= MIN_ALLOCATIONS or self._predicts_before_trials):
            return self.candidates.allocation(self._lowest_safe_regret(curves))
        rates = self._log.rates()
        if not rates:
            missing = "trial has succeeded" if not distinct else "candidate was measured"
            raise NotEnoughDataError(f"No {missing}, so nothing can be recommended.", MIN_ALLOCATIONS)
        measured = list(rates)
        goal = self.goal._replace(hourly_price=self.goal.hourly_price[measured])
        losses = goal.losses(np.log(list(rates.values())))
        return self.candidates.allocation(measured[int(np.argmin(losses))])

    def done(self) -> bool:
        """Return whether `ask` would return None."""
        return self.ask() is None

    def _decide(self) -> int | None:
        """Return the candidate to measure next, or None to stop."""
        if self.max_trials is not None and len(self._log) >= self.max_trials:
            return None
        succeeded = self._log.measured(succeeded=True)
        tried = {*succeeded, *self._log.measured(succeeded=False)}
        if len(tried) == len(self.candidates) or self._log.consecutive_failures() >= MAX_FAILURES:
            return None
        if self._job_ends_before_trial():
            return None
        curves = self._fitted_curves()
        if curves is not None and not succeeded and self._predicts_before_trials:
            return self._lowest_regret(curves, tried)
        first_trials = 1 if self._predicts_before_trials else FIRST_TRIALS
        if curves is None or not succeeded or len(self._log.successful) < first_trials:
            return self._farthest(tried)
        improvement = self._expected_improvement(curves, tried)
        best = int(np.argmax(improvement))
        if self._predicts_before_trials:
            min_trials = MIN_TRIALS_WITH_PRIOR
        else:
            min_trials = FIRST_TRIALS if self.samples_left and self.trial_seconds else MIN_TRIALS
        if len(self._log) >= min_trials and not self._is_worth(curves, best, float(improvement[best])):
            return None
        return best

    def _farthest(self, tried: set[int]) -> int | None:
        """Return the candidate farthest from the tried ones; the first is the nearest to the centre."""
        points = self.candidates.scaled_coordinates()
        jitter = 0.02 * self._rng.random(len(points))
        if not tried:
            return int(np.argmin(((points - points.mean(axis=0)) ** 2).sum(axis=1) + jitter))
        distances = np.min([((points - points[i]) ** 2).sum(axis=1) for i in tried], axis=0) + jitter
        curves = self._fitted_curves()
        scores = distances * self._success_probability()
        if curves is not None:
            regrets = self.goal.regrets(curves).mean(axis=0)
            scores[regrets > np.quantile(regrets, PLAUSIBLE_SHARE)] *= 0.01
        scores[list(tried)] = -1.0
        return int(np.argmax(scores))

    def _lowest_regret(self, curves: Floats, tried: set[int]) -> int:
        """Return the untried candidate with the lowest expected regret, given that it may fail."""
        expected = (1 + self.goal.regrets(curves).mean(axis=0)) / np.maximum(self._success_probability(), 1e-3)
        expected[~self._near()] += 1e3
        expected[list(tried)] = np.inf
        return int(np.argmin(expected))

    def _expected_improvement(self, curves: Floats, tried: set[int]) -> Floats:
        """Return the expected improvement (n,) of the log objective over the best measured candidate."""
        losses = self.goal.losses(curves)
        best_so_far = losses[:, self._log.measured(succeeded=True)].min(axis=1, keepdims=True)
        improvement = np.maximum(best_so_far - losses, 0.0).mean(axis=0) * self._success_probability()
        improvement[list(tried)] = -1.0
        return np.asarray(improvement)

    def _job_ends_before_trial(self) -> bool:
        """Return whether the job would end before another trial does."""
        if not (self._log.distinct() and self.samples_left and self.trial_seconds):
            return False
        return bool(self.samples_left < self.trial_seconds * self._log.successful["throughput"].max())

    def _is_worth(self, curves: Floats, candidate: int, improvement: float) -> bool:
        """Return whether the expected improvement of the objective exceeds what the trial costs."""
        if not (self.samples_left and self.trial_seconds):
            return improvement > MIN_GAIN * 2.0 ** (len(self._log) - MIN_TRIALS)
        chosen = self._lowest_safe_regret(curves)
        remaining_s = self.samples_left / np.exp(curves[:, chosen].mean())
        price = self.goal.hourly_price
        time = self.trial_seconds / remaining_s  # shares of the remaining time and cost
        cost = time * price[candidate] / max(price[chosen], 1e-12)
        share = {"time": time, "cost": cost, "deadline": cost, "balanced": time + cost}[self.goal.objective]
        return bool(improvement > share)

    def _lowest_safe_regret(self, curves: Floats) -> int:
        """Return the candidate with the lowest expected regret of those near the trials that probably succeed."""
        regrets = self.goal.regrets(curves).mean(axis=0)
        near, probability = self._near(), self._success_probability()
        allowed = near & (probability >= min(MIN_SUCCESS_PROBABILITY, probability[near].max(initial=0.0)))
        return int(np.argmin(np.where(allowed, regrets, np.inf)))

    def _near(self) -> NDArray[np.bool_]:
        """Return which candidates (n,) lie within twice the range measured for this job or behind the prior."""
        measured = [self._log.successful] if self._log.distinct() else []
        if self.predictor.prior_ranges:
            measured.append(pd.DataFrame(self.predictor.prior_ranges))
        return self.candidates.near(pd.concat(measured))

    def _success_probability(self) -> Floats:
        """Return the probability (n,) that a trial of a candidate succeeds."""
        if self._probabilities is None:
            succeeded = self._log.measured(succeeded=True)
            failed = self._log.measured(succeeded=False)
            rng = np.random.default_rng(self.seed)
            self._probabilities = success_probability(self.candidates.scaled_coordinates(), succeeded, failed, rng)
        return self._probabilities

    def _fitted_curves(self) -> Floats | None:
        """Return draws (d, n) of the log samples/s of the candidates; None where the model needs more trials."""
        if self._log_curves is None and self._log.distinct() >= self.predictor.min_trials:
            rng = np.random.default_rng(self.seed)
            with contextlib.suppress(NotEnoughDataError):
                curves = self.predictor.fit(self._log.frame).curves(self.candidates.frame, CURVES, rng)
                self._log_curves = np.log(curves)
        return self._log_curves


def _check_integers(**numbers: object) -> None:
    """Raise InputError for a value that is not an integer of at least 0."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
            raise InputError(f"{name} is {value!r}; it must be an integer of at least 0.", "Correct it.")


def _check_positive(**numbers: object) -> None:
    """Raise InputError for a value that is neither None nor a finite number above 0."""
    for name, value in numbers.items():
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf
        ):
            raise InputError(f"{name} is {value!r}; it must be above 0.", "Omit it if it is unknown.")
