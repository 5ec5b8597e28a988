"""Black-box models over the logarithms of the axes, as baselines for the default model.

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
from sizewright.models.axes import MIN_ALLOCATIONS, count_distinct, prepare_training_data
from sizewright.models.table import Table

Floats = NDArray[np.float64]


class LearnedModel(BaseThroughputModel):
    """A regression of log throughput on the axes that vary."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @abstractmethod
    def _fit_regressor(self, places: Floats, logs: Floats) -> None:
        """Fit log throughput (n,) at places (n, k)."""

    @abstractmethod
    def _predict_logs(self, places: Floats) -> tuple[Floats, Floats, float]:
        """Return mean and standard deviation (n,) of log throughput, and the standard deviation of repeats."""

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from successful trials. Raises NotEnoughDataError with fewer than three distinct allocations."""
        trials = prepare_training_data(X, y)
        self.imputer_, self.distinct_ = trials.imputer, count_distinct(trials.axes)
        places = np.column_stack(trials.axes)
        self.vary_ = np.ptp(places, axis=0) > 0
        self._fit_regressor(places[:, self.vary_], np.log(trials.throughput))
        return self

    def predict(self, X: Table) -> Floats:
        """Return samples/s (n,)."""
        return np.asarray(np.exp(self._moments(X)[0]))

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Return lower and upper samples/s (n,)."""
        check_interval(coverage, kind)
        mean, deviation, noise = self._moments(X)
        sd = deviation if kind == "trial" else np.sqrt(np.maximum(deviation**2 - noise**2, 0.0))
        half_width = ndtri(0.5 + coverage / 2) * sd
        return np.exp(mean - half_width), np.exp(mean + half_width)

    def explain(self) -> Explanation:
        """Return an explanation without parameters: a black box has none that mean anything."""
        self._check_fitted()
        return Explanation(self.name, {}, {}, (), self.distinct_, True, MIN_ALLOCATIONS)

    def _moments(self, X: Table) -> tuple[Floats, Floats, float]:
        self._check_fitted()
        places = np.column_stack(self.imputer_.axes(X))[:, self.vary_]
        return self._predict_logs(places) if len(places) else (np.empty(0), np.empty(0), 0.0)


class GaussianProcessModel(LearnedModel):
    """A Gaussian process with a length scale for each axis."""

    name = "gp"

    def _fit_regressor(self, places: Floats, logs: Floats) -> None:
        from sizewright.models.forms.regressors import SmoothRegressor

        self.regressor_ = SmoothRegressor(random_state=self.seed).fit(places, logs)

    def _predict_logs(self, places: Floats) -> tuple[Floats, Floats, float]:
        return *self.regressor_.moments(places), self.regressor_.noise_


class LightGbmModel(LearnedModel):
    """Gradient boosted trees. The interval is that of their training residuals, which is too narrow."""

    name = "lightgbm"

    def _fit_regressor(self, places: Floats, logs: Floats) -> None:
        from sizewright.models.forms.regressors import BoostedRegressor

        self.regressor_ = BoostedRegressor(random_state=self.seed).fit(places, logs)

    def _predict_logs(self, places: Floats) -> tuple[Floats, Floats, float]:
        deviation = self.regressor_.deviation_
        return self.regressor_.predict(places), np.full(len(places), deviation), deviation
