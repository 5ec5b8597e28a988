"""How many rows a growing table will have: distinct ids as samples come, forecast with an interval.

V ids, the one of rank x with a share p(x) ∝ (x + q)^-s · exp(−c·ln²x), and a share ρ of the samples that brings an id
never seen before (a vocabulary that drifts). After n samples a table is expected to have

    E[S(n)] = ∫₁^(V+1) 1 − exp(−(1 − ρ)·n·p(x)) dx + ρ·n

rows (Poisson sampling from the finite Zipf-Mandelbrot model, Evert, JADT 2004; c bends it towards a log-normal law).
For V without end and q = c = ρ = 0 this is Heaps's power law with exponent 1/s; it bends where the vocabulary ends,
which a power law fitted to the first samples overshoots. All are drawn from their posterior given the growth so far,
so that what is not known yet is wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models._base import check_share
from sizewright.models.posterior import Effort, sample
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]

_RANKS = 160
_LEAST_POINTS = 3
_MOST_POINTS = 12
_LARGEST_VOCABULARY = 1e12
_EFFORT = Effort(candidates=1500, chains=128, steps=150)
# Of an increment of rows: what it strays from the model within the growth seen, and per unit of log samples beyond.
_STRAY_BEYOND = 0.2


class _Prior(NamedTuple):
    mean: float
    sd: float


EXPONENT = _Prior(np.log(1.1), 0.35)
"""log s"""
VOCABULARY = _Prior(1.5, 2.0)
"""log of V over the rows seen, less 1: log(V/S − 1)"""
DRIFT = _Prior(-6.0, 2.0)
"""log of ρ·n over the rows seen"""
STRAY = _Prior(-3.5, 1.0)
"""log of how far increments stray"""
SHIFT = _Prior(-3.0, 2.5)
"""log q"""
BEND = _Prior(-8.0, 2.5)
"""log c"""


class RowGrowth:
    """Fitted to (samples, rows) pairs of one table; `vocabulary` is its most rows, where that is known."""

    def __init__(self, vocabulary: float | None = None, seed: int = 0) -> None:
        self.vocabulary = vocabulary
        self.seed = seed

    def fit(self, samples: ArrayLike, rows: ArrayLike) -> Self:
        """Learn from rows (k,) that were there after so many samples (k,), both growing.

        Raises NotEnoughDataError with fewer than three points, InputError where rows shrink or exceed the samples.
        """
        try:
            n, s = np.asarray(samples, float), np.asarray(rows, float)
        except (TypeError, ValueError):
            raise InputError("Samples or rows are no numbers.", "Give one number each.") from None
        _check(n, s, self.vocabulary)
        n, s = _thinned(n, s)
        self.samples_, self.rows_ = n, s
        priors = (EXPONENT, VOCABULARY, DRIFT, STRAY, SHIFT, BEND)
        means, sds = (np.array(column, float) for column in zip(*priors, strict=True))
        rng = np.random.default_rng(self.seed)
        self.draws_ = sample(self._log_likelihood, means, sds, rng, _EFFORT)
        return self

    def draw(self, samples: float) -> Floats:
        """Rows (d,) that there may be after so many samples. Raises InputError before `fit`, or for no number."""
        if not hasattr(self, "draws_"):
            raise InputError("This growth is not fitted yet.", "Call fit with samples and rows first.")
        if not samples >= 0:
            raise InputError(f"There are no {samples} samples.", "Ask about a number from 0 up.")
        now, seen = self.samples_[-1], self.rows_[-1]
        if samples <= now:
            return np.full(len(self.draws_), float(np.interp(samples, [0.0, *self.samples_], [0.0, *self.rows_])))
        rng = np.random.default_rng(self.seed + 1)
        at = self._expected(self.draws_, np.array([now, samples]))
        stray = np.exp(self.draws_[:, 3]) + _STRAY_BEYOND * np.log(samples / now)
        more = np.maximum(at[:, 1] - at[:, 0], 0.0)
        more = more * np.exp(np.minimum(stray, 0.5) * rng.standard_normal(len(more)))
        more = more + np.sqrt(more) * rng.standard_normal(len(more))
        rows = seen + np.clip(more, 0.0, samples - now)
        return np.asarray(np.minimum(rows, self.vocabulary) if self.vocabulary else rows)

    def predict(self, samples: float) -> float:
        """Median of the rows after so many samples."""
        return float(np.median(self.draw(samples)))

    def predict_interval(self, samples: float, coverage: float = 0.9) -> tuple[float, float]:
        """Between which rows there will be with this probability."""
        check_share("coverage", coverage)
        low, high = np.quantile(self.draw(samples), [0.5 - coverage / 2, 0.5 + coverage / 2])
        return float(low), float(high)

    def upper(self, samples: float, probability: float = 0.95) -> float:
        """Rows that are not exceeded with this probability."""
        check_share("probability", probability)
        return float(np.quantile(self.draw(samples), probability))

    def _expected(self, draws: Floats, samples: Floats) -> Floats:
        """E[S] (d, k) after `samples` (k,), by the trapezoid rule over log rank."""
        seen, now = self.rows_[-1], self.samples_[-1]
        exponent, drift = np.exp(draws[:, 0])[:, None], np.exp(draws[:, 2]) * seen / now
        drift = np.minimum(drift, 1.0)[:, None]
        if self.vocabulary:
            size = np.full((len(draws), 1), float(self.vocabulary))
        else:
            size = (seen * (1 + np.exp(np.minimum(draws[:, 1], 25.0))))[:, None]
        size = np.minimum(size, _LARGEST_VOCABULARY)
        log_rank = np.linspace(0.0, 1.0, _RANKS) * np.log1p(size)
        width = np.full(_RANKS, 1.0 / (_RANKS - 1))
        width[[0, -1]] /= 2
        weight = width * np.log1p(size) * np.exp(log_rank)
        shift, bend = np.exp(draws[:, 4:5]), np.exp(draws[:, 5:6])
        beside_first = np.log((np.exp(log_rank) + shift) / (1 + shift))
        share = np.exp(-exponent * beside_first - bend * log_rank**2)
        share = share / (weight * share).sum(axis=1, keepdims=True)
        hits = (1 - drift)[:, :, None] * samples[None, :, None] * share[:, None, :]
        distinct: Floats = (weight[:, None, :] * -np.expm1(-hits)).sum(axis=2) + drift * samples
        return distinct

    def _log_likelihood(self, draws: Floats) -> Floats:
        at = self._expected(draws, self.samples_)
        expected = np.maximum(np.diff(at, prepend=0.0, axis=1), 1e-9)
        found = np.diff(self.rows_, prepend=0.0)
        spread = np.sqrt(expected + (np.exp(draws[:, 3])[:, None] * expected) ** 2)
        off = (found - expected) / spread
        total: Floats = (-0.5 * off**2 - np.log(spread)).sum(axis=1)
        return total


def growth_of_tables(samples: Sequence[int], rows: Sequence[Sequence[int]]) -> list[RowGrowth] | None:
    """One for each table, from its rows after so many samples; None with fewer than three points."""
    if len(samples) < _LEAST_POINTS:
        return None
    grown = np.maximum.accumulate(np.minimum(np.asarray(rows, float), np.asarray(samples, float)), axis=1)
    return [RowGrowth(seed=i).fit(samples, table) for i, table in enumerate(np.maximum(grown, 1.0))]


def _check(n: Floats, s: Floats, vocabulary: float | None) -> None:
    if n.shape != s.shape or n.ndim != 1:
        raise InputError(f"There are {n.size} sample counts and {s.size} row counts.", "Give one each.")
    if len(n) < _LEAST_POINTS:
        verb = "is" if len(n) == 1 else "are"
        raise NotEnoughDataError(
            f"{format_count(len(n), 'point')} {verb} too few to say how a table grows.", _LEAST_POINTS - len(n), "point"
        )
    fine = np.isfinite(n).all() and np.isfinite(s).all() and (n > 0).all() and (s > 0).all()
    if not fine or (np.diff(n) <= 0).any() or (np.diff(s) < 0).any() or (s > n).any():
        raise InputError(
            "Samples must grow from point to point, rows must not shrink, and there is at most one row a sample.",
            "Count the distinct ids of one table after more and more samples.",
        )
    if vocabulary is not None and not vocabulary >= s[-1]:
        raise InputError(f"{s[-1]:g} rows were seen of a vocabulary of {vocabulary:g}.", "Give the larger number.")


def _thinned(n: Floats, s: Floats) -> tuple[Floats, Floats]:
    """At most so many points, even in log samples; the last is kept."""
    if len(n) <= _MOST_POINTS:
        return n, s
    wanted = np.geomspace(n[0], n[-1], _MOST_POINTS)
    kept = np.unique([*(int(np.argmin(np.abs(np.log(n / at)))) for at in wanted), len(n) - 1])
    return n[kept], s[kept]
