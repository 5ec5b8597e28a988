"""Which allocation to measure next: the one that may bring most, until none is worth its cost.

The first trials are far apart. Then every curve that the trials leave possible (`ThroughputModel.paths`) says where it
is best; the next trial is the candidate with the greatest expected improvement over those measured (Mockus 1975; over
whole paths, so that neighbours share what a trial tells). The choice is what loses least on average over the curves.
What is lost that way, or what the best trial may still gain, is what another trial is weighed against.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models.axes import LEAST_ALLOCATIONS
from sizewright.models.curve import prior_of
from sizewright.models.default import ThroughputModel
from sizewright.models.foretold import ForetoldModel
from sizewright.models.prior.curve import JobCurve
from sizewright.profiler.candidates import AllocationRow, Candidates
from sizewright.profiler.feasible import likely_to_end_well
from sizewright.profiler.objective import Goal, check_objective
from sizewright.profiler.told import Told
from sizewright.spec import Prices

Floats = NDArray[np.float64]

FIRST_TRIALS = 4
FORETOLD_TRIALS = 2
"""So many at least where a learned prior has foretold the curve."""
LEAST_TRIALS = 6
MOST_FAILURES = 8
"""So many failures in a row are enough."""
PLAUSIBLE = 0.85
"""Share of the candidates that the first trials are spread over: those that may be best by what is known."""
SURE = 0.8
"""What is recommended must be so likely to end well, once trials have failed."""
WORTH = 0.002
"""Where samples or seconds are not known, the trial after the first `LEAST_TRIALS` must be expected to gain so much of
the objective, each one more twice as much, and each one before (where a prior allows fewer) half as much."""


class TrialPlanner:
    """Ask for an allocation, tell its throughput, until `ask` gives None; `best` is the one to take.

    `candidates` are allocations in columns of the trial table; `workers` and `ps` are needed. `objective` is `time`,
    `cost`, `balanced` or `deadline`; for the last, `deadline_s` and `samples_left` say what is needed, else 80 % of the
    best throughput is. `samples_left` and `trial_seconds` say what a trial is worth and costs. `prior` changes the
    model's; `max_trials` ends it after so many, `seed` fixes its draws; `foretold` is what a learned prior tells of the
    job: the first trial is then where it expects the best, and `best` can be asked before any. A trial that failed is
    told with throughput 0 or NaN; it counts and is not asked for again. Numbers are samples, seconds, and currency per
    hour (`prices`).

    Raises InputError for candidates that are no table of allocations, and for numbers that cannot be.
    """

    def __init__(
        self,
        candidates: pd.DataFrame,
        objective: str = "balanced",
        prices: Prices | Mapping[str, float] | None = None,
        samples_left: float | None = None,
        trial_seconds: float | None = None,
        prior: dict[str, tuple[float, float]] | None = None,
        seed: int = 0,
        max_trials: int | None = None,
        *,
        deadline_s: float | None = None,
        foretold: JobCurve | None = None,
    ) -> None:
        _whole(seed=seed, max_trials=0 if max_trials is None else max_trials)
        _above_zero(samples_left=samples_left, trial_seconds=trial_seconds, deadline_s=deadline_s)
        if deadline_s and not samples_left:
            raise InputError("A deadline says nothing without samples_left.", "Say how many samples are to be trained.")
        prior_of(prior)
        self.candidates = Candidates(candidates, prices)
        needed = samples_left / deadline_s if samples_left and deadline_s else None
        self.goal = Goal(check_objective(objective), self.candidates.hourly_price, needed)
        self.samples_left, self.trial_seconds = samples_left, trial_seconds
        self.max_trials = max_trials
        self.prior, self.seed, self.foretold = prior, seed, foretold
        self._rng = np.random.default_rng(seed)
        self._told = Told(self.candidates)
        self._next: int | None = None
        self._paths: Floats | None = None
        self._chances: Floats | None = None
        self._decided = False

    @property
    def trials(self) -> pd.DataFrame:
        """What was told, a row for each trial."""
        return self._told.frame

    def ask(self) -> AllocationRow | None:
        """A candidate to measure, or None when another trial is not worth it; the same until something is told."""
        if not self._decided:
            self._next, self._decided = self._decide(), True
        return None if self._next is None else self.candidates.allocation(self._next)

    def tell(self, allocation: Mapping[str, object], throughput: float | None, **more: object) -> None:
        """What came of a trial: samples/s, and any other column of the trial table.

        Raises InputError for an infinite or negative throughput, or what is no allocation of the candidates' kind.
        """
        self._told.add(allocation, throughput, more)
        self._decided, self._paths, self._chances = False, None, None

    def best(self) -> AllocationRow:
        """The candidate that loses least by what is known now, measured or not; until three differ, the best measured,
        or with a curve foretold what that tells.

        Raises NotEnoughDataError when no trial has ended well, or fewer than three and none of a candidate.
        """
        paths, distinct = self._fitted_paths(), self._told.distinct()
        if paths is not None and (distinct >= LEAST_ALLOCATIONS or self.foretold):
            return self.candidates.allocation(self._choice(paths))
        rates = self._told.rates()
        if not rates:
            who = "trial has ended well" if not distinct else "candidate was measured"
            raise NotEnoughDataError(f"No {who}, so nothing can be recommended.", LEAST_ALLOCATIONS)
        places = list(rates)
        goal = self.goal._replace(hourly_price=self.goal.hourly_price[places])
        return self.candidates.allocation(places[int(np.argmin(goal.losses(np.log(list(rates.values())))))])

    def done(self) -> bool:
        """Whether `ask` would give None."""
        return self.ask() is None

    def _decide(self) -> int | None:
        if self.max_trials is not None and len(self._told) >= self.max_trials:
            return None
        well = self._told.places(well=True)
        measured = {*well, *self._told.places(well=False)}
        if len(measured) == len(self.candidates) or self._told.failures_in_a_row() >= MOST_FAILURES:
            return None
        if self._sooner_done():
            return None
        paths = self._fitted_paths()
        if paths is not None and not well and self.foretold:
            return self._likeliest(paths, measured)
        if paths is None or not well or len(self._told.good) < (1 if self.foretold else FIRST_TRIALS):
            return self._farthest(measured)
        improvement = self._improvement(paths, measured)
        most = int(np.argmax(improvement))
        least = FIRST_TRIALS if self.samples_left and self.trial_seconds else LEAST_TRIALS
        least = FORETOLD_TRIALS if self.foretold else least
        if len(self._told) >= least and not self._worth(paths, most, float(improvement[most])):
            return None
        return most

    def _farthest(self, measured: set[int]) -> int | None:
        """The candidate farthest from those tried; the first is in the middle."""
        places = self.candidates.spread()
        jitter = 0.02 * self._rng.random(len(places))
        if not measured:
            return int(np.argmin(((places - places.mean(axis=0)) ** 2).sum(axis=1) + jitter))
        gaps = np.min([((places - places[i]) ** 2).sum(axis=1) for i in measured], axis=0) + jitter
        paths = self._fitted_paths()
        gaps = gaps * self._ends_well()
        if paths is not None:
            regrets = self.goal.regrets(paths).mean(axis=0)
            gaps[regrets > np.quantile(regrets, PLAUSIBLE)] *= 0.01
        gaps[list(measured)] = -1.0
        return int(np.argmax(gaps))

    def _likeliest(self, paths: Floats, measured: set[int]) -> int:
        """The candidate with the least expected regret that was not tried and may end well."""
        expected = (1 + self.goal.regrets(paths).mean(axis=0)) / np.maximum(self._ends_well(), 1e-3)
        expected[~self._near()] += 1e3
        expected[list(measured)] = np.inf
        return int(np.argmin(expected))

    def _improvement(self, paths: Floats, measured: set[int]) -> Floats:
        """Expected improvement (n,) of the logarithm of the objective over the best of those measured."""
        losses = self.goal.losses(paths)
        so_far = losses[:, self._told.places(well=True)].min(axis=1, keepdims=True)
        gain = np.maximum(so_far - losses, 0.0).mean(axis=0) * self._ends_well()
        gain[list(measured)] = -1.0
        return np.asarray(gain)

    def _sooner_done(self) -> bool:
        """Whether the job would be done before another trial were."""
        if not (self._told.distinct() and self.samples_left and self.trial_seconds):
            return False
        return bool(self.samples_left < self.trial_seconds * self._told.good["throughput"].max())

    def _worth(self, paths: Floats, place: int, improvement: float) -> bool:
        """Whether what a trial may gain of the objective is more than it takes."""
        if not (self.samples_left and self.trial_seconds):
            return improvement > WORTH * 2.0 ** (len(self._told) - LEAST_TRIALS)
        chosen = self._choice(paths)
        remaining_s = self.samples_left / np.exp(paths[:, chosen].mean())
        time = self.trial_seconds / remaining_s
        price = self.goal.hourly_price
        money = time * price[place] / max(price[chosen], 1e-12)
        share = {"time": time, "cost": money, "deadline": money, "balanced": time + money}[self.goal.objective]
        return bool(improvement > share)

    def _choice(self, paths: Floats) -> int:
        """The candidate with the least expected regret, among those that likely end well and are near the trials."""
        regrets = self.goal.regrets(paths).mean(axis=0)
        near, sure = self._near(), self._ends_well()
        allowed = near & (sure >= min(SURE, sure[near].max(initial=0.0)))
        return int(np.argmin(np.where(allowed, regrets, np.inf)))

    def _near(self) -> NDArray[np.bool_]:
        """Which candidates (n,) lie within twice the range that was measured, of this job or of those foretold from."""
        told = [self._told.good] if self._told.distinct() else []
        if self.foretold:
            told.append(pd.DataFrame(self.foretold.ranges))
        return self.candidates.near(pd.concat(told))

    def _ends_well(self) -> Floats:
        """Probability (n,) that a candidate does."""
        if self._chances is None:
            well, failed = (self._told.places(well=well) for well in (True, False))
            rng = np.random.default_rng(self.seed)
            self._chances = likely_to_end_well(self.candidates.spread(), well, failed, rng)
        return self._chances

    def _fitted_paths(self) -> Floats | None:
        """Logarithms of samples/s (d, n) of the candidates; None where nothing tells any."""
        if self._paths is None:
            rng = np.random.default_rng(self.seed)
            if self._told.distinct():
                model = ThroughputModel(self.prior, self.seed, least_allocations=1, foretold=self.foretold)
                self._paths = model.fit(self._told.frame).paths(self.candidates.frame, rng)
            elif self.foretold:
                self._paths = ForetoldModel(self.foretold).paths(self.candidates.frame, rng)
        return self._paths


def _whole(**numbers: object) -> None:
    """Raises InputError for what is no whole number from 0 up."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
            raise InputError(f"{name} is {value!r}; it must be a whole number from 0 up.", "Correct it.")


def _above_zero(**numbers: object) -> None:
    """Raises InputError for what is neither None nor a finite number above 0."""
    for name, value in numbers.items():
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf
        ):
            raise InputError(f"{name} is {value!r}; it must be above 0.", "Leave it out if it is not known.")
