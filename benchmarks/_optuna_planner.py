"""Optuna's Gaussian process sampler as a planner: what a user of a general tuner would have."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
import pandas as pd

from sizewright.profiler.candidates import Candidates
from sizewright.profiler.objective import Goal, check_objective


class OptunaPlanner:
    """Each axis is a share of its range; what is suggested is taken to the nearest candidate not yet tried."""

    def __init__(self, candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> None:
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.candidates, self.trials = Candidates(candidates), trials
        self.goal = Goal(check_objective(objective), self.candidates.hourly_price)
        sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=4)
        self.study = optuna.create_study(sampler=sampler)
        self.spread = self.candidates.spread()
        self.told: dict[int, float] = {}
        self.trial: Any = None

    def ask(self) -> dict[str, Any] | None:
        if len(self.told) >= min(self.trials, len(self.candidates)):
            return None
        self.trial = self.study.ask()
        at = np.array([self.trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(self.spread.shape[1])])
        far = ((self.spread - at) ** 2).sum(axis=1)
        far[list(self.told)] = np.inf
        return self.candidates.allocation(int(np.argmin(far)))

    def tell(self, allocation: Mapping[str, Any], throughput: float | None, **more: Any) -> None:
        place = self.candidates.place(allocation)
        assert place is not None
        self.told[place] = float(throughput or 0.0)
        best = max(self.told.values())
        rates = np.full(len(self.candidates), -50.0)
        rates[place] = np.log(max(self.told[place], 1e-9))
        goal = self.goal._replace(needed=0.8 * best) if self.goal.objective == "deadline" else self.goal
        self.study.tell(self.trial, float(min(goal.losses(rates)[place], 50.0)))

    def best(self) -> dict[str, Any]:
        rates = np.full(len(self.candidates), -50.0)
        for place, rate in self.told.items():
            rates[place] = np.log(max(rate, 1e-9))
        losses = self.goal.losses(rates)
        places = list(self.told)
        return self.candidates.allocation(places[int(np.argmin(losses[places]))])
