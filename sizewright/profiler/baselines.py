"""Simpler ways of choosing trials and allocations: what the planner is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import erf

from sizewright.errors import InputError
from sizewright.models.registry import get_model
from sizewright.models.table import as_columns, known
from sizewright.profiler.candidates import AllocationRow, Candidates
from sizewright.profiler.objective import Goal, check_objective
from sizewright.profiler.planner import TrialPlanner

Floats = NDArray[np.float64]


class Asker(Protocol):
    """What a replay drives: as `TrialPlanner`."""

    def ask(self) -> AllocationRow | None:
        """An allocation to measure, or None."""

    def tell(self, allocation: Mapping[str, object], throughput: float | None, **more: object) -> None:
        """What came of it."""

    def best(self) -> AllocationRow:
        """The pick."""


MakePlanner = Callable[[pd.DataFrame, str, int, int], Asker]
"""From candidates, objective, trials and seed."""


class _Baseline:
    """Keeps what was told; `next` is the candidate to try, `guess` what throughput is thought to be."""

    def __init__(self, candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> None:
        self.candidates = Candidates(candidates)
        self.goal = Goal(check_objective(objective), self.candidates.hourly_price)
        self.trials, self.rng, self.seed = trials, np.random.default_rng(seed), seed
        self.places: list[int] = []
        self.rates: list[float] = []

    def ask(self) -> AllocationRow | None:
        if len(self.places) >= min(self.trials, len(self.candidates)):
            return None
        return self.candidates.allocation(self.next())

    def next(self) -> int:
        raise NotImplementedError

    def tell(self, allocation: Mapping[str, object], throughput: float | None, **more: object) -> None:
        place = self.candidates.place(allocation)
        assert place is not None
        self.places.append(place)
        self.rates.append(float(throughput or 0.0))

    def best(self) -> AllocationRow:
        return self.candidates.allocation(self.choice(self.guess()))

    @property
    def failed(self) -> list[int]:
        """Candidates that failed."""
        return [place for place, rate in zip(self.places, self.rates, strict=True) if not rate > 0]

    def guess(self) -> Floats:
        """Samples/s (n,) as they are thought to be; 0 where nothing is thought."""
        rates = np.zeros(len(self.candidates))
        for place, rate in zip(self.places, self.rates, strict=True):
            rates[place] = max(rates[place], rate)
        return rates

    def choice(self, rates: Floats) -> int:
        rates = rates.copy()
        rates[self.failed] = 0.0
        if not (rates > 0).any():
            return self.places[0]
        losses = self.goal.losses(np.log(np.maximum(rates, 1e-12)))
        return int(np.argmin(np.where(rates > 0, losses, np.inf)))

    def fitted(self, name: str) -> Any:
        """A model of what was told, or None where that is too little for it."""
        frame = self.candidates.frame.iloc[self.places]
        try:
            return get_model(name).fit(frame, np.array(self.rates))
        except InputError:
            return None


class Designed(_Baseline):
    """Trials by `design` (`random`, `lhs`), then the best of `model`'s curve, or of those measured without one."""

    def __init__(
        self, candidates: pd.DataFrame, objective: str, trials: int, seed: int, design: str, model: str | None = None
    ) -> None:
        super().__init__(candidates, objective, trials, seed)
        self.model = model
        count = min(trials, len(self.candidates))
        self.queue = (
            latin_hypercube(self.candidates.spread(), count, seed)
            if design == "lhs"
            else self.rng.permutation(len(self.candidates))[:count].tolist()
        )

    def next(self) -> int:  # noqa: D102
        return int(self.queue[len(self.places)])

    def guess(self) -> Floats:  # noqa: D102
        model = self.fitted(self.model) if self.model else None
        try:
            return super().guess() if model is None else np.asarray(model.predict(self.candidates.frame))
        except InputError:  # the model knows no replicas as some of the candidates have
            return super().guess()


class PlainGp(_Baseline):
    """A Gaussian process over log throughput with expected improvement, after four random trials.

    The pick is the best of its mean, or with `pick="measured"` the best of those measured.
    """

    def __init__(
        self, candidates: pd.DataFrame, objective: str, trials: int, seed: int, pick: Literal["mean", "measured"]
    ) -> None:
        super().__init__(candidates, objective, trials, seed)
        self.pick = pick

    def next(self) -> int:  # noqa: D102
        model = self.fitted("gp") if len(self.places) >= 4 else None
        free = np.setdiff1d(np.arange(len(self.candidates)), self.places)
        if model is None:
            return int(self.rng.choice(free))
        mean, deviation = self._moments(model)
        weight = 2.0 if self.goal.objective == "balanced" else 1.0
        losses = self.goal.losses(mean)
        gap = losses[self.places].min() - losses
        z = gap / np.maximum(weight * deviation, 1e-9)
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        gain = gap * 0.5 * (1 + erf(z / np.sqrt(2))) + weight * deviation * density
        return int(free[np.argmax(gain[free])])

    def guess(self) -> Floats:  # noqa: D102
        model = self.fitted("gp") if self.pick == "mean" else None
        return super().guess() if model is None else np.asarray(model.predict(self.candidates.frame))

    def _moments(self, model: Any) -> tuple[Floats, Floats]:
        lower, upper = model.predict_interval(self.candidates.frame, 0.6827, "mean")
        return (np.log(lower) + np.log(upper)) / 2, (np.log(upper) - np.log(lower)) / 2


class Untried(_Baseline):
    """No trial at all: the most cores (`largest`), or throughput taken to grow with workers × cores (`linear`)."""

    def __init__(self, candidates: pd.DataFrame, objective: str, trials: int, seed: int, rule: str) -> None:
        super().__init__(candidates, objective, 0, seed)
        self.rule = rule

    def best(self) -> AllocationRow:  # noqa: D102
        columns = as_columns(self.candidates.frame)
        cores = columns["workers"] * known(columns["worker_cpu"], 1.0)
        if self.rule == "largest":
            return self.candidates.allocation(int(np.argmax(cores + columns["ps"] * known(columns["ps_cpu"], 1.0))))
        return self.candidates.allocation(self.choice(cores))


def latin_hypercube(places: Floats, count: int, seed: int) -> list[int]:
    """Rows of `places` (n, a), in the unit cube, nearest to a Latin hypercube sample, none of them twice."""
    from scipy.stats import qmc

    chosen: list[int] = []
    for point in qmc.LatinHypercube(max(1, places.shape[1]), rng=seed).random(count):
        far = ((places - point[: places.shape[1]]) ** 2).sum(axis=1)
        far[chosen] = np.inf
        chosen.append(int(np.argmin(far)))
    return chosen


def default_planner(candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> Asker:
    """Ours."""
    return TrialPlanner(candidates, objective, seed=seed, max_trials=trials)


def baseline_planners() -> dict[str, MakePlanner]:
    """By name."""

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
        "lhs": designed("lhs"),
        "random": designed("random"),
        "largest": untried("largest"),
        "workers-x-cores": untried("linear"),
    }
