"""Optuna's Gaussian process sampler as a planner: what a user of a general tuner would have."""

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
    """Each axis is a share of its range; what is suggested is taken to the nearest candidate not yet tried.

    It is told what was measured where it was measured, with losses as they look now, and failures as failures.
    """

    def __init__(self, candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> None:
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.candidates, self.trials = CandidateSet(candidates), trials
        self.goal = Goal(check_objective(objective), self.candidates.hourly_price)
        self.sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=4)
        self.spread = self.candidates.spread()
        self.axes = {f"x{i}": FloatDistribution(0.0, 1.0) for i in range(self.spread.shape[1])}
        self.told: dict[int, float] = {}

    def ask(self) -> AllocationRow | None:
        if len(self.told) >= min(self.trials, len(self.candidates)):
            return None
        study = optuna.create_study(sampler=self.sampler)
        study.add_trials([self._trial(place, loss) for place, loss in self._losses().items()])
        asked = study.ask(dict(self.axes))
        far = ((self.spread - np.array(list(asked.params.values()))) ** 2).sum(axis=1)
        far[list(self.told)] = np.inf
        return self.candidates.allocation(int(np.argmin(far)))

    def tell(self, allocation: Mapping[str, object], throughput: float | None, **more: object) -> None:
        place = self.candidates.place(allocation)
        assert place is not None
        self.told[place] = float(throughput or 0.0)

    def best(self) -> AllocationRow:
        losses = self._losses()
        return self.candidates.allocation(min(losses, key=lambda place: losses[place]))

    def _losses(self) -> dict[int, float]:
        """Of those told; infinite where it failed."""
        rates = np.full(len(self.candidates), -50.0)
        for place, rate in self.told.items():
            rates[place] = np.log(max(rate, 1e-9))
        best = max(self.told.values(), default=0.0)
        goal = self.goal._replace(needed=0.8 * best) if self.goal.objective == "deadline" and best else self.goal
        losses = goal.losses(rates)
        return {place: float(losses[place]) if rate > 0 else float("inf") for place, rate in self.told.items()}

    def _trial(self, place: int, loss: float) -> optuna.trial.FrozenTrial:
        params = dict(zip(self.axes, self.spread[place].tolist(), strict=True))
        if np.isinf(loss):
            return optuna.trial.create_trial(params=params, distributions=dict(self.axes), state=TrialState.FAIL)
        return optuna.trial.create_trial(params=params, distributions=dict(self.axes), value=loss)
