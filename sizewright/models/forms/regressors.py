"""Regressors over plain arrays, under the outer models: scikit-learn estimators that pass its checks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import Self

Floats = NDArray[np.float64]


_TAIL_FREEDOM, _TAIL_ROUNDS = 4.0, 3


class SmoothRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A Gaussian process with a length for each column and noise, all by marginal likelihood.

    With `heavy_tails` the noise is Student's t with 4 degrees of freedom: a row weighs less, the further its prediction
    from all other rows is off (iteratively reweighted, as in Lange, Little and Taylor 1989).
    """

    def __init__(self, restarts: int = 2, random_state: int | None = 0, heavy_tails: bool = False) -> None:
        self.restarts = restarts
        self.random_state = random_state
        self.heavy_tails = heavy_tails

    def fit(self, X: Any, y: Any) -> Self:
        """Learn y (n,) from X (n, k)."""
        X, y = validate_data(self, X, y, y_numeric=True, ensure_min_samples=2)
        ranges = np.ptp(X, axis=0)
        self.min_, self.range_ = X.min(axis=0), np.where(ranges > 0, ranges, 1.0)
        self.mean_, self.scale_ = float(y.mean()), float(y.std()) or 1.0
        lengths = Matern(np.ones(X.shape[1]), (0.2, 20), nu=2.5)
        kernel = ConstantKernel(1.0, (0.05, 50)) * lengths + WhiteKernel(0.01, (1e-4, 0.5))
        places, values = (X - self.min_) / self.range_, (y - self.mean_) / self.scale_
        self.weights_ = np.ones(len(y))
        self.process_ = self._fit_process(kernel, places, values, self.restarts)
        for _ in range(_TAIL_ROUNDS if self.heavy_tails else 0):
            self.weights_ = self._tail_weights(places, values)
            self.process_ = self._fit_process(self.process_.kernel_, places, values, 0)
        return self

    def _fit_process(self, kernel: Any, places: Floats, values: Floats, restarts: int) -> GaussianProcessRegressor:
        """Return the process, fitted with the present weights of the rows."""
        more_noise = np.zeros(len(values))
        if hasattr(self, "process_"):
            more_noise = self.process_.kernel_.k2.noise_level * (1 / self.weights_ - 1)
        process = GaussianProcessRegressor(
            kernel, alpha=more_noise + 1e-10, n_restarts_optimizer=restarts, random_state=self.random_state
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length or noise at its bound is a valid result
            return process.fit(places, values)

    def _tail_weights(self, places: Floats, values: Floats) -> Floats:
        """Return the weight (n,) of each row by its leave-one-out error (Rasmussen and Williams 2006, eq. 5.12)."""
        more_noise = np.broadcast_to(self.process_.alpha, len(values))
        inverse = np.linalg.inv(self.process_.kernel_(places) + np.diag(more_noise))
        errors = inverse @ values / np.diag(inverse)
        variance = np.maximum(1 / np.diag(inverse) - more_noise, 1e-12)  # as if the row weighed as much as others
        weights: Floats = np.minimum((_TAIL_FREEDOM + 1) / (_TAIL_FREEDOM + errors**2 / variance), 1.0)
        return weights

    def predict(self, X: Any) -> Floats:
        """Return the mean (n,)."""
        return self.moments(X)[0]

    def moments(self, X: Any) -> tuple[Floats, Floats]:
        """Return mean and standard deviation (n,) of another measurement."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        mean, deviation = self.process_.predict((X - self.min_) / self.range_, return_std=True)
        return mean * self.scale_ + self.mean_, deviation * self.scale_

    @property
    def noise_(self) -> float:
        """Standard deviation of repeats."""
        return float(np.sqrt(self.process_.kernel_.k2.noise_level)) * self.scale_


class BoostedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """LightGBM with leaves small enough for the few trials of a job; with its defaults it predicts a constant."""

    def __init__(self, rounds: int = 200, learning_rate: float = 0.1, random_state: int | None = 0) -> None:
        self.rounds = rounds
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn y (n,) from X (n, k)."""
        import lightgbm

        X, y = validate_data(self, X, y, y_numeric=True, ensure_min_samples=2)
        parameters = {
            "objective": "regression", "num_leaves": 8, "min_data_in_leaf": 2, "min_data_in_bin": 1,
            "learning_rate": self.learning_rate, "seed": self.random_state or 0, "verbosity": -1,
            "num_threads": 1, "deterministic": True, "feature_pre_filter": False,
        }  # fmt: skip
        data = lightgbm.Dataset(np.asarray(X, float), np.asarray(y, float), params=parameters, free_raw_data=True)
        self.booster_ = lightgbm.train(parameters, data, self.rounds)
        residuals = np.asarray(y, float) - self.booster_.predict(np.asarray(X, float))
        self.deviation_ = float(residuals.std())
        return self

    def predict(self, X: Any) -> Floats:
        """Return the mean (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return np.asarray(self.booster_.predict(np.asarray(X, float)), float)
