"""The residual of a curve, as a Gaussian process in the logarithms of the axes.

The process is τ² times a Matérn kernel (ν = 3/2) plus noise σ², around a level with a flat prior, which is integrated
out (Rasmussen and Williams 2006, eqs 2.41 to 2.45, with one constant). τ and σ differ from draw to draw but the kernel
does not, so one eigendecomposition serves all draws. Trials of one allocation are pooled: where a residual is the mean
of several, everything is multiplied by the root of their number, which makes the noise the same everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.axes import Axes
from sizewright.models.matern import FEATURES, Features, matern

Floats = NDArray[np.float64]

_JITTER = 1e-9


class ResidualScales(NamedTuple):
    """Standard deviations of the residual, τ, and of the noise, σ, of each draw (d,)."""

    residual: Floats
    noise: Floats


class Repeats(NamedTuple):
    """Distinct allocations (n), in the order in which they were first measured, and the spread of their trials."""

    rows: NDArray[np.int64]
    """The first trial of each allocation."""
    rates: Floats
    """Mean log samples/s (n,)."""
    counts: Floats
    """Number of trials of each allocation (n,)."""
    squares: float
    """Sum of squares of the trials about the means."""

    def log_likelihood(self, noise: Floats) -> Floats:
        """Return the log likelihood of the trials about their means for each noise (d,), up to a constant."""
        freedom = self.counts.sum() - len(self.counts)
        total: Floats = -0.5 * self.squares / noise**2 - freedom * np.log(noise)
        return total


def pool_repeats(axes: Axes, rates: Floats) -> Repeats:
    """Return the distinct allocations of trials with log samples/s `rates` (N,)."""
    _, first, group = np.unique(np.column_stack(axes).round(9), axis=0, return_index=True, return_inverse=True)
    counts = np.bincount(group).astype(float)
    means = np.bincount(group, rates) / counts
    order = np.argsort(first)
    return Repeats(first[order], means[order], counts[order], float(((rates - means[group]) ** 2).sum()))


class ResidualProcess:
    """A process at `places` (n, a), where residuals are means of `counts` (n,) trials, by default of one."""

    def __init__(self, places: Floats, counts: Floats | None = None) -> None:
        self.places = places
        root = self._root = np.sqrt(np.ones(len(places)) if counts is None else counts)
        kernel = matern(places, places) + _JITTER * np.eye(len(places))
        self._values, vectors = np.linalg.eigh(kernel * root * root[:, None])
        self._vectors = root[:, None] * vectors
        self._ones = self._vectors.sum(axis=0)

    def log_likelihood(self, residuals: Floats, scales: ResidualScales) -> Floats:
        """Return the log likelihood (d,) of the residuals (d, n) of each draw, the level integrated out."""
        precision = self._precision(scales)
        rotated = residuals @ self._vectors
        level_precision = precision @ self._ones**2
        cross = (precision * rotated) @ self._ones
        squares = (precision * rotated**2).sum(axis=1) - cross**2 / level_precision
        total: Floats = -0.5 * (squares - np.log(precision).sum(axis=1) + np.log(level_precision))
        return total

    def moments(self, residuals: Floats, scales: ResidualScales, at: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance (d, m) of level plus residual at `at` (m, a), without noise."""
        precision = self._precision(scales)
        level, weights = self._solve(residuals, precision)
        rotated = matern(at, self.places) @ self._vectors
        tau2 = scales.residual[:, None] ** 2
        mean: Floats = level + tau2 * (weights @ rotated.T)
        explained = precision @ (rotated**2).T
        level_precision = (precision @ self._ones**2)[:, None]
        shortfall = 1 - tau2 * ((precision * self._ones) @ rotated.T)
        variance = tau2 * (1 - tau2 * explained) + shortfall**2 / level_precision
        return mean, np.asarray(np.maximum(variance, 0.0))

    def paths(self, residuals: Floats, scales: ResidualScales, at: Floats, rng: np.random.Generator) -> Floats:
        """Return a posterior function of each draw (d, m): a prior path corrected at the trials (Wilson 2020)."""
        features = Features.draw(self.places.shape[1], rng)
        weights = rng.standard_normal((len(residuals), FEATURES)) * scales.residual[:, None]
        noise = rng.standard_normal(residuals.shape) * scales.noise[:, None] / self._root
        corrections = residuals - weights @ features.of(self.places).T - noise
        level, correction = self._solve(corrections, self._precision(scales))
        rotated = matern(at, self.places) @ self._vectors
        path: Floats = weights @ features.of(at).T + level + scales.residual[:, None] ** 2 * (correction @ rotated.T)
        return path

    def _precision(self, scales: ResidualScales) -> Floats:
        """Return the precision (d, n) of the rotated residuals."""
        variance = scales.residual[:, None] ** 2 * self._values + scales.noise[:, None] ** 2
        return np.asarray(1 / np.maximum(variance, 1e-12))

    def _solve(self, residuals: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """Return the level (d, 1), and the weights (d, n) of the rotated kernel."""
        rotated = residuals @ self._vectors
        level = ((precision * rotated) @ self._ones / (precision @ self._ones**2))[:, None]
        return level, precision * (rotated - level * self._ones)
