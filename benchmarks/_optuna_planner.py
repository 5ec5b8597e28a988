"""Optuna's Gaussian process sampler as a planner: the alternative of a general-purpose tuner."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from sizewright.profiler.planner.candidates import AllocationRow, CandidateSet
from sizewright.profiler.planner.objective import Goal, check_objective


class OptunaPlanner:
    """A planner that scales each axis to its range and rounds a suggestion to the nearest candidate not yet tried.

    Each suggestion comes from a new study, which contains the measured candidates with their present losses, and the
    failed ones as failed trials.
    """

    def __init__(self, candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> None:
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.candidates, self.trials = CandidateSet(candidates), trials
        self.goal = Goal(check_objective(objective), self.candidates.hourly_price)
        self.sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=4)
        self.unit_axes = self.candidates.scaled_coordinates()
        self.axes = {f"x{i}": FloatDistribution(0.0, 1.0) for i in range(self.unit_axes.shape[1])}
        self.rates: dict[int, float] = {}

    def ask(self) -> AllocationRow | None:
        if len(self.rates) >= min(self.trials, len(self.candidates)):
            return None
        study = optuna.create_study(sampler=self.sampler)
        study.add_trials([self._trial(place, loss) for place, loss in self._losses().items()])
        suggestion = study.ask(dict(self.axes))
        distances = ((self.unit_axes - np.array(list(suggestion.params.values()))) ** 2).sum(axis=1)
        distances[list(self.rates)] = np.inf
        return self.candidates.allocation(int(np.argmin(distances)))

    def tell(self, allocation: Mapping[str, object], throughput: float | None, **more: object) -> None:
        place = self.candidates.index_of(allocation)
        assert place is not None
        self.rates[place] = float(throughput or 0.0)

    def best(self) -> AllocationRow:
        losses = self._losses()
        return self.candidates.allocation(min(losses, key=lambda place: losses[place]))

    def _losses(self) -> dict[int, float]:
        """Return the loss of each measured candidate; failed ones have an infinite loss."""
        rates = np.full(len(self.candidates), -50.0)
        for place, rate in self.rates.items():
            rates[place] = np.log(max(rate, 1e-9))
        best = max(self.rates.values(), default=0.0)
        goal = self.goal._replace(needed=0.8 * best) if self.goal.objective == "deadline" and best else self.goal
        losses = goal.losses(rates)
        return {place: float(losses[place]) if rate > 0 else float("inf") for place, rate in self.rates.items()}

    def _trial(self, place: int, loss: float) -> optuna.trial.FrozenTrial:
        params = dict(zip(self.axes, self.unit_axes[place].tolist(), strict=True))
        if np.isinf(loss):
            return optuna.trial.create_trial(params=params, distributions=dict(self.axes), state=TrialState.FAIL)
        return optuna.trial.create_trial(params=params, distributions=dict(self.axes), value=loss)
