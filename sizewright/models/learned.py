"""Models without physics, over the logarithms of the axes: what the default model is compared with.

A Gaussian process (Rasmussen and Williams 2006) and gradient boosted trees (LightGBM, Ke et al. 2017), with normal
intervals of log throughput.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from typing_extensions import Self

from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.axes import LEAST_ALLOCATIONS, count_distinct, measured
from sizewright.models.table import Table

Floats = NDArray[np.float64]


class LearnedModel(BaseThroughputModel):
    """Log throughput over the axes that vary."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @abstractmethod
    def _learn(self, places: Floats, logs: Floats) -> None:
        """From places (n, k) to log throughput (n,)."""

    @abstractmethod
    def _tell(self, places: Floats) -> tuple[Floats, Floats, float]:
        """Mean and standard deviation (n,) of log throughput, and the standard deviation of repeats."""

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from trials that ended well. Raises NotEnoughDataError with fewer than three distinct allocations."""
        trials = measured(X, y)
        self.usual_, self.distinct_ = trials.usual, count_distinct(trials.axes)
        places = np.column_stack(trials.axes)
        self.vary_ = np.ptp(places, axis=0) > 0
        self._learn(places[:, self.vary_], np.log(trials.throughput))
        return self

    def predict(self, X: Table) -> Floats:
        """Samples/s (n,)."""
        return np.asarray(np.exp(self._of(X)[0]))

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Lower and upper samples/s (n,)."""
        check_interval(coverage, kind)
        mean, deviation, noise = self._of(X)
        wide = deviation if kind == "trial" else np.sqrt(np.maximum(deviation**2 - noise**2, 0.0))
        half = ndtri(0.5 + coverage / 2) * wide
        return np.exp(mean - half), np.exp(mean + half)

    def explain(self) -> Explanation:
        """Nothing physical is known."""
        self._check_fitted()
        return Explanation(self.name, {}, {}, (), self.distinct_, True, LEAST_ALLOCATIONS)

    def _of(self, X: Table) -> tuple[Floats, Floats, float]:
        self._check_fitted()
        places = np.column_stack(self.usual_.axes(X))[:, self.vary_]
        return self._tell(places) if len(places) else (np.empty(0), np.empty(0), 0.0)


class GaussianProcessModel(LearnedModel):
    """A Gaussian process with a length for each axis."""

    name = "gp"

    def _learn(self, places: Floats, logs: Floats) -> None:
        from sizewright.models.regressors import SmoothRegressor

        self.regressor_ = SmoothRegressor(random_state=self.seed).fit(places, logs)

    def _tell(self, places: Floats) -> tuple[Floats, Floats, float]:
        return *self.regressor_.moments(places), self.regressor_.noise_


class LightGbmModel(LearnedModel):
    """Gradient boosted trees; the interval is that of their residuals, which is too narrow."""

    name = "lightgbm"

    def _learn(self, places: Floats, logs: Floats) -> None:
        from sizewright.models.regressors import BoostedRegressor

        self.regressor_ = BoostedRegressor(random_state=self.seed).fit(places, logs)

    def _tell(self, places: Floats) -> tuple[Floats, Floats, float]:
        deviation = self.regressor_.deviation_
        return self.regressor_.predict(places), np.full(len(places), deviation), deviation
