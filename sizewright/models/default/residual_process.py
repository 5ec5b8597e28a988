"""The residual of a curve, as a Gaussian process in the logarithms of the axes.

The process is τ² times a Matérn kernel (ν = 3/2) with a length per axis, plus noise σ², around a level with a flat
prior, which is integrated out (Rasmussen and Williams 2006, eqs 2.41 to 2.45, with one constant). The lengths follow
their prior log ℓ ~ N(log 1.6, 1), which a fixed set of vectors covers: the likelihood of a draw is the mean over them,
and each draw then gets one vector by its likelihood. τ and σ differ from draw to draw but the kernel of a vector does
not, so one eigendecomposition of each serves all draws. Trials of one allocation are pooled: where a residual is the
mean of several, everything is multiplied by the root of their number, which makes the noise the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sizewright.models.axes import Axes
from sizewright.models.default.curve import single
from sizewright.models.matern import Features, matern

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_JITTER = 1e-9
_LENGTH_VECTORS = 32
_MAX_USED_VECTORS = 16  # a prediction computes a kernel for each
_FEATURES = 96  # of the paths of one vector
_LOG_LENGTH = (float(np.log(1.6)), 1.0)
# Student's t of the noise about what the other allocations predict.
_TAIL_FREEDOM = 4.0
_CONTRADICTED = 0.5  # a larger weight is none
_ALLOCATIONS_PER_OUTLIER = 4


class ResidualScales(NamedTuple):
    """Standard deviations of the residual, τ, and of the noise, σ, of each draw (d,)."""

    residual: Floats
    noise: Floats


class Repeats(NamedTuple):
    """Distinct allocations (n), in the order in which they were first measured, and the spread of their trials."""

    rows: Integers
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


def prior_lengths(axes: int) -> Floats:
    """Return vectors of lengths (k, axes) that cover their prior evenly: an additive recurrence (Roberts 2018)."""
    root = 2.0
    for _ in range(64):  # the root of x^(axes + 1) = x + 1
        root = (1 + root) ** (1 / (axes + 1))
    uniform = (0.5 + np.outer(np.arange(1, _LENGTH_VECTORS + 1), root ** -np.arange(1.0, axes + 1))) % 1.0
    mean, sd = _LOG_LENGTH
    return np.asarray(np.exp(mean + sd * ndtri(np.clip(uniform, 1e-3, 1 - 1e-3))))


class ResidualProcess:
    """A process at `places` (n, a), where residuals are means of `counts` (n,) trials, by default of one.

    `lengths` (k, a) are the vectors of lengths per axis, by default those that cover the prior.
    """

    def __init__(self, places: Floats, counts: Floats | None = None, lengths: Floats | None = None) -> None:
        self.places = places
        self.lengths = prior_lengths(places.shape[1]) if lengths is None else lengths
        root = self._root = np.sqrt(np.ones(len(places)) if counts is None else counts)
        kernels = np.array([matern(places, places, length) for length in self.lengths]) + _JITTER * np.eye(len(places))
        self._values, vectors = np.linalg.eigh(kernels * root * root[:, None])  # (k, n) and (k, n, n)
        self._vectors = root[:, None] * vectors
        self._ones = self._vectors.sum(axis=1)
        self._single = tuple(map(single, (self._values, self._vectors, self._ones)))

    def log_likelihood(self, residuals: Floats, scales: ResidualScales) -> Floats:
        """Return the log likelihood (d,) of the residuals (d, n) of each draw; level and lengths are integrated out."""
        by_length = self._log_likelihoods(residuals, scales)
        return np.asarray(np.logaddexp.reduce(by_length, axis=0) - np.log(len(self.lengths)), float)

    def draw_lengths(self, residuals: Floats, scales: ResidualScales, rng: np.random.Generator) -> Integers:
        """Return which vector of lengths each draw has (d,), drawn by likelihood; all draws share the likeliest 16."""
        by_length = self._log_likelihoods(residuals, scales)
        weights = np.exp(by_length - np.logaddexp.reduce(by_length, axis=0))
        likeliest = np.argsort(-weights.sum(axis=1))[:_MAX_USED_VECTORS]
        cumulative = np.cumsum(weights[likeliest], axis=0)
        chosen = (cumulative < rng.random(len(residuals)) * cumulative[-1]).sum(axis=0)
        return np.asarray(likeliest[np.minimum(chosen, len(likeliest) - 1)])

    def moments(
        self, residuals: Floats, scales: ResidualScales, lengths: Integers, at: Floats
    ) -> tuple[Floats, Floats]:
        """Return mean and variance (d, m) of level plus residual at `at` (m, a), without noise."""
        mean, variance = np.empty((2, len(residuals), len(at)))
        for k, draws in _by_vector(lengths):
            mean[draws], variance[draws] = self._moments_of(k, residuals[draws], _pick(scales, draws), at)
        return mean, np.maximum(variance, 0.0)

    def paths(
        self, residuals: Floats, scales: ResidualScales, lengths: Integers, at: Floats, rng: np.random.Generator
    ) -> Floats:
        """Return a posterior function of each draw (d, m): a prior path corrected at the trials (Wilson 2020)."""
        paths = np.empty((len(residuals), len(at)))
        for k, draws in _by_vector(lengths):
            paths[draws] = self._paths_of(k, residuals[draws], _pick(scales, draws), at, rng)
        return paths

    def tail_weights(self, residuals: Floats, scales: ResidualScales, lengths: Integers) -> Floats:
        """Return the weight (n,) of each allocation, 1 but for those that all others contradict.

        Each residual is compared with its prediction from the others (Rasmussen and Williams 2006, eq. 5.12). Its
        weight is that of Student's t with 4 degrees of freedom. The most contradicted allocation gets its weight first,
        since the prediction of its neighbours uses it.
        """
        weights, process = np.ones(len(self.places)), self
        for _ in range(len(weights) // _ALLOCATIONS_PER_OUTLIER):
            tail = (_TAIL_FREEDOM + 1) / (_TAIL_FREEDOM + process._squared_errors(residuals, scales, lengths))
            worst = int(np.argmin(tail))
            if tail[worst] > _CONTRADICTED:
                break
            weights[worst] *= tail[worst]
            process = ResidualProcess(self.places, self._root**2 * weights, self.lengths)
        return weights

    def _squared_errors(self, residuals: Floats, scales: ResidualScales, lengths: Integers) -> Floats:
        """Return the squared error (n,) of each allocation's prediction from the others, over its variance."""
        error, variance = np.zeros((2, len(self.places)))
        for k, draws in _by_vector(lengths):
            precision = _precision(self._values[k], _pick(scales, draws))[:, None, :]
            inverse = precision * self._vectors[k] @ self._vectors[k].T  # (d, n, n)
            ones = inverse.sum(axis=2, keepdims=True)
            inverse = inverse - ones * ones.transpose(0, 2, 1) / ones.sum(axis=1, keepdims=True)
            own = np.maximum(np.diagonal(inverse, axis1=1, axis2=2), 1e-12)
            error += ((inverse @ residuals[draws][:, :, None])[:, :, 0] / own).sum(axis=0)
            variance += (1 / own).sum(axis=0)
        return (error / len(residuals)) ** 2 / np.maximum(variance / len(residuals), 1e-12)

    def _log_likelihoods(self, residuals: Floats, scales: ResidualScales) -> Floats:
        """Return the log likelihood (k, d) of each vector of lengths and draw.

        In single precision it takes a quarter of the time, and its error is about 1e-4.
        """
        centered = residuals - residuals.mean(axis=1, keepdims=True)  # the level takes the rest
        values, vectors, ones = self._single
        rotated = single(centered) @ vectors
        precision = _precision(values[:, None, :], ResidualScales(*map(single, scales)))
        level_precision = np.einsum("kdn,kn->kd", precision, ones**2)
        cross = np.einsum("kdn,kdn,kn->kd", precision, rotated, ones)
        squares = np.einsum("kdn,kdn,kdn->kd", precision, rotated, rotated) - cross**2 / level_precision
        return np.asarray(-0.5 * (squares - np.log(precision).sum(axis=2) + np.log(level_precision)))

    def _moments_of(self, k: int, residuals: Floats, scales: ResidualScales, at: Floats) -> tuple[Floats, Floats]:
        precision = _precision(self._values[k], scales)
        level, weights = self._solve(k, residuals, precision)
        rotated = matern(at, self.places, self.lengths[k]) @ self._vectors[k]
        tau2 = scales.residual[:, None] ** 2
        explained = precision @ (rotated**2).T
        level_precision = (precision @ self._ones[k] ** 2)[:, None]
        shortfall = 1 - tau2 * ((precision * self._ones[k]) @ rotated.T)
        return level + tau2 * (weights @ rotated.T), tau2 * (1 - tau2 * explained) + shortfall**2 / level_precision

    def _paths_of(
        self, k: int, residuals: Floats, scales: ResidualScales, at: Floats, rng: np.random.Generator
    ) -> Floats:
        features = Features.draw(self.places.shape[1], rng, self.lengths[k], _FEATURES)
        weights = rng.standard_normal((len(residuals), _FEATURES)) * scales.residual[:, None]
        noise = rng.standard_normal(residuals.shape) * scales.noise[:, None] / self._root
        corrections = residuals - weights @ features.of(self.places).T - noise
        level, correction = self._solve(k, corrections, _precision(self._values[k], scales))
        rotated = matern(at, self.places, self.lengths[k]) @ self._vectors[k]
        path: Floats = weights @ features.of(at).T + level + scales.residual[:, None] ** 2 * (correction @ rotated.T)
        return path

    def _solve(self, k: int, residuals: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """Return the level (d, 1), and the weights (d, n) of the rotated kernel."""
        rotated, ones = residuals @ self._vectors[k], self._ones[k]
        level = ((precision * rotated) @ ones / (precision @ ones**2))[:, None]
        return level, precision * (rotated - level * ones)


def _by_vector(lengths: Integers) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield each vector of lengths that draws have, and which draws (d,) have it."""
    for k in np.unique(lengths):
        yield int(k), lengths == k


def _precision(values: Floats, scales: ResidualScales) -> Floats:
    """Return the precision ([k,] d, n) of residuals that are rotated onto the kernel's eigenvectors."""
    variance = scales.residual[:, None] ** 2 * values + scales.noise[:, None] ** 2
    return np.asarray(1 / np.maximum(variance, 1e-12))


def _pick(scales: ResidualScales, draws: NDArray[np.bool_]) -> ResidualScales:
    return ResidualScales(*(column[draws] for column in scales))
