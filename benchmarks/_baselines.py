"""Baselines that the planner is compared with: simpler ways to choose trials and allocations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import erf

from benchmarks._plain_process import PlainProcess
from sizewright.errors import InputError
from sizewright.models.registry import get_model
from sizewright.models.table import as_columns, filled
from sizewright.profiler.evaluation import latin_hypercube
from sizewright.profiler.planner.candidates import AllocationRow, CandidateSet
from sizewright.profiler.planner.objective import Goal, check_objective
from sizewright.profiler.planner.trial_planner import TrialPlanner

Floats = NDArray[np.float64]


class Asker(Protocol):
    """A planner with the interface of `TrialPlanner`, which a replay drives."""

    def ask(self) -> AllocationRow | None:
        """Return an allocation to measure, or None to stop."""

    def tell(self, allocation: Mapping[str, object], throughput: float | None, **more: object) -> None:
        """Record the throughput of an allocation."""

    def best(self) -> AllocationRow:
        """Return the chosen allocation."""


MakePlanner = Callable[[pd.DataFrame, str, int, int], Asker]
"""Makes a planner from candidates, objective, number of trials and seed."""


class Baseline:
    """A planner that records its trials; subclasses override `next` (the candidate to try) and `predict`."""

    def __init__(self, candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> None:
        self.candidates = CandidateSet(candidates)
        self.goal = Goal(check_objective(objective), self.candidates.hourly_price)
        self.trials = trials
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.measured: list[int] = []
        self.rates: list[float] = []

    def ask(self) -> AllocationRow | None:
        if len(self.measured) >= min(self.trials, len(self.candidates)):
            return None
        return self.candidates.allocation(self.next())

    def next(self) -> int:
        raise NotImplementedError

    def tell(self, allocation: Mapping[str, object], throughput: float | None, **more: object) -> None:
        candidate = self.candidates.index_of(allocation)
        assert candidate is not None
        self.measured.append(candidate)
        self.rates.append(float(throughput or 0.0))

    def best(self) -> AllocationRow:
        return self.candidates.allocation(self.choice(self.predict()))

    @property
    def failed(self) -> list[int]:
        """Candidates whose trial failed."""
        return [candidate for candidate, rate in zip(self.measured, self.rates, strict=True) if not rate > 0]

    def predict(self) -> Floats:
        """Return predicted samples/s (n,) of the candidates; 0 where there is no prediction."""
        rates = np.zeros(len(self.candidates))
        for candidate, rate in zip(self.measured, self.rates, strict=True):
            rates[candidate] = max(rates[candidate], rate)
        return rates

    def choice(self, rates: Floats) -> int:
        rates = rates.copy()
        rates[self.failed] = 0.0
        if not (rates > 0).any():
            return self.measured[0]
        losses = self.goal.losses(np.log(np.maximum(rates, 1e-12)))
        return int(np.argmin(np.where(rates > 0, losses, np.inf)))

    def fitted(self, name: str) -> Any:
        """Return a model fitted to the trials, or None if they are too few for it."""
        frame = self.candidates.frame.iloc[self.measured]
        try:
            return get_model(name).fit(frame, np.array(self.rates))
        except InputError:
            return None


class Designed(Baseline):
    """Trials by a `design` (`random`, `lhs`); chooses the best of `model`'s curve, or without one, of the trials."""

    def __init__(
        self, candidates: pd.DataFrame, objective: str, trials: int, seed: int, design: str, model: str | None = None
    ) -> None:
        super().__init__(candidates, objective, trials, seed)
        self.model = model
        count = min(trials, len(self.candidates))
        self.queue = (
            latin_hypercube(self.candidates.scaled_coordinates(), count, seed)
            if design == "lhs"
            else self.rng.permutation(len(self.candidates))[:count].tolist()
        )

    def next(self) -> int:
        return int(self.queue[len(self.measured)])

    def predict(self) -> Floats:
        model = self.fitted(self.model) if self.model else None
        try:
            return super().predict() if model is None else np.asarray(model.predict(self.candidates.frame))
        except InputError:  # some candidates have replicas that the model does not support
            return super().predict()


class PlainGp(Baseline):
    """A Gaussian process over log throughput with expected improvement, after four random trials.

    The choice is the best of its mean, or with `pick="measured"` the best measured candidate.
    """

    def __init__(
        self, candidates: pd.DataFrame, objective: str, trials: int, seed: int, pick: Literal["mean", "measured"]
    ) -> None:
        super().__init__(candidates, objective, trials, seed)
        self.pick = pick

    def next(self) -> int:
        model = self.fitted_process() if len(self.measured) >= 4 else None
        untried = np.setdiff1d(np.arange(len(self.candidates)), self.measured)
        if model is None:
            return int(self.rng.choice(untried))
        mean, deviation = self._moments(model)
        weight = 2.0 if self.goal.objective == "balanced" else 1.0
        losses = self.goal.losses(mean)
        improvement = losses[self.measured].min() - losses
        z = improvement / np.maximum(weight * deviation, 1e-9)
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        expected = improvement * 0.5 * (1 + erf(z / np.sqrt(2))) + weight * deviation * density
        return int(untried[np.argmax(expected[untried])])

    def predict(self) -> Floats:
        model = self.fitted_process() if self.pick == "mean" else None
        return super().predict() if model is None else np.asarray(model.predict(self.candidates.frame))

    def fitted_process(self) -> Any:
        """Return the Gaussian process fitted to the trials, or None if they are too few for it."""
        return self.fitted("gp")

    def _moments(self, model: Any) -> tuple[Floats, Floats]:
        lower, upper = model.predict_interval(self.candidates.frame, 0.6827, "mean")
        return (np.log(lower) + np.log(upper)) / 2, (np.log(upper) - np.log(lower)) / 2


class ProcessPlanner(PlainGp):
    """The same over the fixed rival of the default model (`_plain_process.py`)."""

    def fitted_process(self) -> Any:
        if sum(rate > 0 for rate in self.rates) < 2:
            return None
        frame = self.candidates.frame
        return PlainProcess(frame).fit(frame.iloc[self.measured], np.array(self.rates))

    def _moments(self, model: Any) -> tuple[Floats, Floats]:
        moments: tuple[Floats, Floats] = model.moments(self.candidates.frame)
        return moments


class Untried(Baseline):
    """No trials: choose the most cores (`largest`), or assume that throughput grows with workers × cores (`linear`)."""

    def __init__(self, candidates: pd.DataFrame, objective: str, trials: int, seed: int, rule: str) -> None:
        super().__init__(candidates, objective, 0, seed)
        self.rule = rule

    def best(self) -> AllocationRow:
        columns = as_columns(self.candidates.frame)
        cores = columns["workers"] * filled(columns["worker_cpu"], 1.0)
        if self.rule == "largest":
            return self.candidates.allocation(int(np.argmax(cores + columns["ps"] * filled(columns["ps_cpu"], 1.0))))
        return self.candidates.allocation(self.choice(cores))


def default_planner(candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> Asker:
    """Return the planner of this package."""
    return TrialPlanner(candidates, objective, seed=seed, max_trials=trials)


def weighted_planner(weight: float) -> MakePlanner:
    """Return a factory of the planner of this package with another weight of a shortfall."""

    def make(candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> Asker:
        return TrialPlanner(candidates, objective, seed=seed, max_trials=trials, shortfall_weight=weight)

    return make


def baseline_planners() -> dict[str, MakePlanner]:
    """Return factories of the baselines by name."""

    def designed(design: str, model: str | None = None) -> MakePlanner:
        return lambda candidates, objective, trials, seed: Designed(candidates, objective, trials, seed, design, model)

    def gaussian(pick: Literal["mean", "measured"]) -> MakePlanner:
        return lambda candidates, objective, trials, seed: PlainGp(candidates, objective, trials, seed, pick)

    def untried(rule: str) -> MakePlanner:
        return lambda candidates, objective, trials, seed: Untried(candidates, objective, trials, seed, rule)

    return {
        "optimus": designed("random", "optimus"),
        "ernest": designed("random", "ernest"),
        "dlrover": designed("random", "dlrover"),
        "lightgbm": designed("random", "lightgbm"),
        "gp-ei": gaussian("mean"),
        "gp-ei-measured": gaussian("measured"),
        "plain-process": lambda candidates, objective, trials, seed: ProcessPlanner(
            candidates, objective, trials, seed, "mean"
        ),
        "lhs": designed("lhs"),
        "random": designed("random"),
        "largest": untried("largest"),
        "workers-x-cores": untried("linear"),
    }
