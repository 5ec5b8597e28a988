"""What a curve leaves unexplained, as a Gaussian process in the logarithms of the axes.

The process is τ² times a Matérn kernel (ν = 3/2) plus noise σ², around a level with a flat prior, which is integrated
out (Rasmussen and Williams 2006, eqs 2.41 to 2.45, with one constant). τ and σ differ from draw to draw and the kernel
does not, so one eigendecomposition serves all draws. Where a residual is the mean of several, everything is multiplied
by the root of their number, which makes the noise the same everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LENGTH = 1.3  # in natural logarithms: an axis must be multiplied by 3.7 for the residual to be another
FEATURES = 256
_JITTER = 1e-9


class Scales(NamedTuple):
    """Of each draw (d,): standard deviations of the residual, τ, and of the noise, σ."""

    residual: Floats
    noise: Floats


class ResidualProcess:
    """Conditioned on residuals at `places` (n, a), each the mean of so many (n,), by default of one."""

    def __init__(self, places: Floats, counts: Floats | None = None) -> None:
        self.places = places
        root = self._root = np.sqrt(np.ones(len(places)) if counts is None else counts)
        kernel = matern(places, places) + _JITTER * np.eye(len(places))
        self._values, vectors = np.linalg.eigh(kernel * root * root[:, None])
        self._vectors = root[:, None] * vectors
        self._ones = self._vectors.sum(axis=0)

    def log_likelihood(self, residuals: Floats, scales: Scales) -> Floats:
        """Of residuals (d, n) of each draw, the level integrated out: (d,)."""
        precision = self._precision(scales)
        turned = residuals @ self._vectors
        of_level = precision @ self._ones**2
        cross = (precision * turned) @ self._ones
        squares = (precision * turned**2).sum(axis=1) - cross**2 / of_level
        total: Floats = -0.5 * (squares - np.log(precision).sum(axis=1) + np.log(of_level))
        return total

    def moments(self, residuals: Floats, scales: Scales, at: Floats) -> tuple[Floats, Floats]:
        """Mean and variance (d, m) of level and residual at `at` (m, a), noise not included."""
        precision = self._precision(scales)
        level, weights = self._solve(residuals, precision)
        turned = matern(at, self.places) @ self._vectors
        tau2 = scales.residual[:, None] ** 2
        mean: Floats = level + tau2 * (weights @ turned.T)
        explained = precision @ (turned**2).T
        of_level = (precision @ self._ones**2)[:, None]
        shortfall = 1 - tau2 * ((precision * self._ones) @ turned.T)
        variance = tau2 * (1 - tau2 * explained) + shortfall**2 / of_level
        return mean, np.asarray(np.maximum(variance, 0.0))

    def paths(self, residuals: Floats, scales: Scales, at: Floats, rng: np.random.Generator) -> Floats:
        """One function of each draw, (d, m), from the posterior: a prior path corrected at the trials (Wilson 2020)."""
        features = Features.draw(self.places.shape[1], rng)
        weights = rng.standard_normal((len(residuals), FEATURES)) * scales.residual[:, None]
        noise = rng.standard_normal(residuals.shape) * scales.noise[:, None] / self._root
        left = residuals - weights @ features.of(self.places).T - noise
        level, correction = self._solve(left, self._precision(scales))
        turned = matern(at, self.places) @ self._vectors
        grown: Floats = weights @ features.of(at).T + level + scales.residual[:, None] ** 2 * (correction @ turned.T)
        return grown

    def _precision(self, scales: Scales) -> Floats:
        """Of the turned residuals, (d, n)."""
        spread = scales.residual[:, None] ** 2 * self._values + scales.noise[:, None] ** 2
        return np.asarray(1 / np.maximum(spread, 1e-12))

    def _solve(self, residuals: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """The level (d, 1), and what weighs the turned kernel (d, n)."""
        turned = residuals @ self._vectors
        level = ((precision * turned) @ self._ones / (precision @ self._ones**2))[:, None]
        return level, precision * (turned - level * self._ones)


def matern(a: Floats, b: Floats, length: float = LENGTH) -> Floats:
    """The kernel (n, m) of places (n, k) and (m, k)."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2 * a @ b.T
    distance = np.sqrt(3 * np.maximum(squares, 0.0)) / length
    grown: Floats = (1 + distance) * np.exp(-distance)
    return grown


class Features(NamedTuple):
    """Random Fourier features of the kernel (Rahimi and Recht 2007); its spectrum is Student's t with 3 degrees."""

    frequencies: Floats
    phases: Floats

    @classmethod
    def draw(cls, dims: int, rng: np.random.Generator) -> Features:
        """For places of so many dimensions."""
        normal = rng.standard_normal((FEATURES, dims))
        chi2 = rng.chisquare(3, (FEATURES, 1))
        return cls(normal * np.sqrt(3 / chi2) / LENGTH, rng.uniform(0, 2 * np.pi, FEATURES))

    def of(self, places: Floats) -> Floats:
        """Features (n, f) of places (n, a)."""
        waves: Floats = np.sqrt(2 / FEATURES) * np.cos(places @ self.frequencies.T + self.phases)
        return waves
