"""A fixed rival of the default model: a plain Gaussian process, fitted to the very same trials.

It is scikit-learn's process over the logarithms of the axes that vary, standardised over the candidates, with textbook
bounds. Its settings are part of the comparison: do not tune them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from sizewright.models.table import as_columns
from sizewright.profiler.planner.candidates import ALLOCATION_COLUMNS, log_coordinates

Floats = NDArray[np.float64]
RESAMPLES = 10_000


class PlainProcess:
    """A Gaussian process over the log throughput of the candidates of one table."""

    def __init__(self, candidates: pd.DataFrame) -> None:
        points = log_coordinates(as_columns(candidates, ALLOCATION_COLUMNS))
        self._varying = np.ptp(points, axis=0) > 0
        self._mean, self._sd = points[:, self._varying].mean(axis=0), points[:, self._varying].std(axis=0)

    def fit(self, trials: pd.DataFrame, rates: Any) -> PlainProcess:
        """Fit the process to trials (m rows) and their samples/s (m,); failed trials are left out."""
        rates = np.asarray(rates, float)
        works = rates > 0
        lengths = RBF(np.ones(self._varying.sum()), (0.1, 10))
        kernel = ConstantKernel(1.0, (0.01, 100)) * lengths + WhiteKernel(0.01, (1e-5, 1))
        process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=3, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length or noise at its bound is a valid result
            self._process = process.fit(self._points(trials)[works], np.log(rates[works]))
        return self

    def predict(self, allocations: pd.DataFrame) -> Floats:
        """Return the median samples/s (n,)."""
        return np.asarray(np.exp(self._process.predict(self._points(allocations))))

    def moments(self, allocations: pd.DataFrame) -> tuple[Floats, Floats]:
        """Return mean and standard deviation (n,) of the log of another measurement."""
        mean, sd = self._process.predict(self._points(allocations), return_std=True)
        return mean, sd

    def predict_interval(self, allocations: pd.DataFrame, coverage: float) -> tuple[Floats, Floats]:
        """Return the ends (n,) of the interval of another measurement."""
        mean, sd = self.moments(allocations)
        half = float(ndtri((1 + coverage) / 2)) * sd
        return np.exp(mean - half), np.exp(mean + half)

    def _points(self, frame: pd.DataFrame) -> Floats:
        points = log_coordinates(as_columns(frame, ALLOCATION_COLUMNS))[:, self._varying]
        return np.asarray((points - self._mean) / self._sd)


def additional_error(ours: Sequence[float], theirs: Sequence[float], tables: Sequence[str]) -> dict[str, float]:
    """Return the mean of `ours` − `theirs` over tables, with its 95 % interval by a bootstrap over the tables.

    Errors of one table are averaged first; replays in which either is NaN are left out.
    """
    difference = pd.Series(np.subtract(ours, theirs)).groupby(list(tables)).mean().dropna().to_numpy()
    if not len(difference):
        return {"mean": float("nan"), "lower": float("nan"), "upper": float("nan")}
    rng = np.random.default_rng(0)
    means = difference[rng.integers(len(difference), size=(RESAMPLES, len(difference)))].mean(axis=1)
    lower, upper = np.quantile(means, [0.025, 0.975])
    return {"mean": float(difference.mean()), "lower": float(lower), "upper": float(upper)}
