"""Forecast of the rows of a growing table: distinct ids as samples come, with an interval.

There are V ids; that of rank x has a share p(x) ∝ (x + q)^-s · exp(−c·ln²x). A share ρ of the samples brings an id
never seen before (a vocabulary that drifts). The expected number of rows after n samples is

    E[S(n)] = ∫₁^(V+1) 1 − exp(−(1 − ρ)·n·p(x)) dx + ρ·n

(Poisson sampling from the finite Zipf-Mandelbrot model, Evert, JADT 2004; c bends it towards a log-normal law).
For infinite V and q = c = ρ = 0 this is Heaps's power law with exponent 1/s; it bends where the vocabulary ends, where
a power law fitted to the first samples overshoots. All parameters are drawn from their posterior given the growth so
far, so the forecast is wide where they are uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.formatting import format_count
from sizewright.models._base import check_share
from sizewright.models.posterior import Effort, sample

Floats = NDArray[np.float64]

_RANKS = 160
_MIN_POINTS = 3
_MAX_POINTS = 12
_MAX_VOCABULARY = 1e12
_EFFORT = Effort(candidates=1500, chains=128, steps=150)
# Relative error of an increment of rows beyond the measured growth, per unit of log samples.
_EXTRAPOLATION_SD = 0.2


class _Prior(NamedTuple):
    mean: float
    sd: float


EXPONENT = _Prior(np.log(1.1), 0.35)
"""log s"""
VOCABULARY = _Prior(1.5, 2.0)
"""log(V/S − 1), with S the measured rows"""
DRIFT = _Prior(-6.0, 2.0)
"""log of ρ·n over the measured rows"""
ERROR = _Prior(-3.5, 1.0)
"""log of the relative error of increments"""
SHIFT = _Prior(-3.0, 2.5)
"""log q"""
BEND = _Prior(-8.0, 2.5)
"""log c"""


class RowGrowth:
    """Growth of one table, fitted to (samples, rows) pairs; `vocabulary` is its maximum number of rows, if known."""

    def __init__(self, vocabulary: float | None = None, seed: int = 0) -> None:
        self.vocabulary = vocabulary
        self.seed = seed

    def fit(self, samples: ArrayLike, rows: ArrayLike) -> Self:
        """Learn from the numbers of rows (k,) after `samples` (k,); both grow.

        Raises NotEnoughDataError with fewer than three points, InputError where rows shrink or exceed the samples.
        """
        try:
            n, s = np.asarray(samples, float), np.asarray(rows, float)
        except (TypeError, ValueError):
            raise InputError("samples and rows must be numbers.", "Give one number for each point.") from None
        _check(n, s, self.vocabulary)
        n, s = _thinned(n, s)
        self.samples_, self.rows_ = n, s
        priors = (EXPONENT, VOCABULARY, DRIFT, ERROR, SHIFT, BEND)
        means, sds = (np.array(column, float) for column in zip(*priors, strict=True))
        rng = np.random.default_rng(self.seed)
        self.draws_ = sample(self._log_likelihood, means, sds, rng, _EFFORT)
        return self

    def draw(self, samples: float) -> Floats:
        """Return draws (d,) of the rows after `samples`. Raises InputError before `fit`, or for a negative number."""
        if not hasattr(self, "draws_"):
            raise InputError("This RowGrowth is not fitted yet.", "Call fit with samples and rows first.")
        if not samples >= 0:
            raise InputError(f"samples must be 0 or more, got {samples}.", "Give a number of samples.")
        last_samples, last_rows = self.samples_[-1], self.rows_[-1]
        if samples <= last_samples:
            return np.full(len(self.draws_), float(np.interp(samples, [0.0, *self.samples_], [0.0, *self.rows_])))
        rng = np.random.default_rng(self.seed + 1)
        expected = self._expected(self.draws_, np.array([last_samples, samples]))
        error = np.exp(self.draws_[:, 3]) + _EXTRAPOLATION_SD * np.log(samples / last_samples)
        increment = np.maximum(expected[:, 1] - expected[:, 0], 0.0)
        increment = increment * np.exp(np.minimum(error, 0.5) * rng.standard_normal(len(increment)))
        increment = increment + np.sqrt(increment) * rng.standard_normal(len(increment))
        rows = last_rows + np.clip(increment, 0.0, samples - last_samples)
        return np.asarray(np.minimum(rows, self.vocabulary) if self.vocabulary else rows)

    def predict(self, samples: float) -> float:
        """Return the median of the rows after `samples`."""
        return float(np.median(self.draw(samples)))

    def predict_interval(self, samples: float, coverage: float = 0.9) -> tuple[float, float]:
        """Return the interval that holds the rows after `samples` with probability `coverage`."""
        check_share("coverage", coverage)
        low, high = np.quantile(self.draw(samples), [0.5 - coverage / 2, 0.5 + coverage / 2])
        return float(low), float(high)

    def upper(self, samples: float, probability: float = 0.95) -> float:
        """Return the number of rows that is not exceeded with this probability."""
        check_share("probability", probability)
        return float(np.quantile(self.draw(samples), probability))

    def _expected(self, draws: Floats, samples: Floats) -> Floats:
        """Return E[S] (d, k) after `samples` (k,), by the trapezoid rule over log rank."""
        last_rows, last_samples = self.rows_[-1], self.samples_[-1]
        exponent = np.exp(draws[:, 0])[:, None]
        drift = np.minimum(np.exp(draws[:, 2]) * last_rows / last_samples, 1.0)[:, None]
        if self.vocabulary:
            size = np.full((len(draws), 1), float(self.vocabulary))
        else:
            size = (last_rows * (1 + np.exp(np.minimum(draws[:, 1], 25.0))))[:, None]
        size = np.minimum(size, _MAX_VOCABULARY)
        log_rank = np.linspace(0.0, 1.0, _RANKS) * np.log1p(size)
        width = np.full(_RANKS, 1.0 / (_RANKS - 1))
        width[[0, -1]] /= 2
        weight = width * np.log1p(size) * np.exp(log_rank)
        shift, bend = np.exp(draws[:, 4:5]), np.exp(draws[:, 5:6])
        log_relative_rank = np.log((np.exp(log_rank) + shift) / (1 + shift))
        share = np.exp(-exponent * log_relative_rank - bend * log_rank**2)
        share = share / (weight * share).sum(axis=1, keepdims=True)
        hits = (1 - drift)[:, :, None] * samples[None, :, None] * share[:, None, :]
        distinct: Floats = (weight[:, None, :] * -np.expm1(-hits)).sum(axis=2) + drift * samples
        return distinct

    def _log_likelihood(self, draws: Floats) -> Floats:
        rows = self._expected(draws, self.samples_)
        expected = np.maximum(np.diff(rows, prepend=0.0, axis=1), 1e-9)
        measured = np.diff(self.rows_, prepend=0.0)
        sd = np.sqrt(expected + (np.exp(draws[:, 3])[:, None] * expected) ** 2)
        errors = (measured - expected) / sd
        total: Floats = (-0.5 * errors**2 - np.log(sd)).sum(axis=1)
        return total


def growth_of_tables(samples: Sequence[int], rows: Sequence[Sequence[int]]) -> list[RowGrowth] | None:
    """Return the growth of each table from its rows after `samples`; None with fewer than three points."""
    if len(samples) < _MIN_POINTS:
        return None
    grown = np.maximum.accumulate(np.minimum(np.asarray(rows, float), np.asarray(samples, float)), axis=1)
    return [RowGrowth(seed=i).fit(samples, table) for i, table in enumerate(np.maximum(grown, 1.0))]


def _check(n: Floats, s: Floats, vocabulary: float | None) -> None:
    if n.shape != s.shape or n.ndim != 1:
        raise InputError(f"samples has {n.size} numbers, but rows has {s.size}.", "Give both for each point.")
    if len(n) < _MIN_POINTS:
        verb = "is" if len(n) == 1 else "are"
        raise NotEnoughDataError(
            f"{format_count(len(n), 'point')} {verb} too few to forecast the growth of a table.",
            _MIN_POINTS - len(n),
            "point",
        )
    positive = np.isfinite(n).all() and np.isfinite(s).all() and (n > 0).all() and (s > 0).all()
    if not positive or (np.diff(n) <= 0).any() or (np.diff(s) < 0).any() or (s > n).any():
        raise InputError(
            "samples must grow from point to point, rows must not shrink, and rows must not exceed samples.",
            "Count the distinct ids of one table after more and more samples.",
        )
    if vocabulary is not None and not vocabulary >= s[-1]:
        raise InputError(
            f"vocabulary is {vocabulary:g}, but {s[-1]:g} rows were measured.", "Give a larger vocabulary."
        )


def _thinned(n: Floats, s: Floats) -> tuple[Floats, Floats]:
    """Return a limited number of points, evenly spaced in log samples; the last is kept."""
    if len(n) <= _MAX_POINTS:
        return n, s
    targets = np.geomspace(n[0], n[-1], _MAX_POINTS)
    kept = np.unique([*(int(np.argmin(np.abs(np.log(n / at)))) for at in targets), len(n) - 1])
    return n[kept], s[kept]
