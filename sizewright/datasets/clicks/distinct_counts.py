"""Extrapolate the number of distinct ids to a longer sample of the same stream: lower, expected and upper.

Notation: n samples held S distinct ids, of which f1 were seen once and f2 twice; N is the length of the longer sample.

- Lower: Chao et al. (Ecological Monographs 84, 2014, eq. 9; from Shen, Chao & Lin, 2003):
  S + f0·(1 - (1 - f1/(n·f0 + f1))^(N - n)), with the Chao1 lower bound of unseen ids
  f0 = (n - 1)/n · f1²/(2·f2), or (n - 1)/n · f1·(f1 - 1)/2 where f2 is 0.
- Upper: the power law (Heaps) whose exponent is the present one, S·(N/n)^(f1/S); by Good & Turing f1/n is the rate
  of new ids, so f1/S is the slope of log S over log n. It overshoots where the vocabulary ends.
- Between: a bounded power law of id frequencies, the finite Zipf-Mandelbrot model (Evert, JADT 2004; here without
  shift): V ids, the one of rank x with probability p(x) ∝ x^-s. With Poisson sampling
  E[S(n)] = ∫ 1 - exp(-n·p(x)) dx and E[f1(n)] = ∫ n·p(x)·exp(-n·p(x)) dx over ranks 1 to V + 1. Exponent and V are
  fitted to f1, S and to the S of the sample's random parts (n/4, n/16), which are known exactly in expectation
  (rarefaction, Good 1953); the value is scaled to meet S at n and kept within lower and upper.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_SIGMAS = 1.645  # two-sided 90 %
_PARTS = (1.0, 1 / 4, 1 / 16)
_GRID = 400


class DistinctCounts(NamedTuple):
    """The distinct ids seen, and the expected number with an interval of about 90 %."""

    seen: float
    estimate: float
    lower: float
    upper: float


def extrapolate(counts: NDArray[np.int64], read: int, samples: int, share: float = 1.0) -> DistinctCounts:
    """Estimate the distinct ids in `samples` samples from the counts of each id in the first `read` samples.

    `counts` may cover a random `share` of the distinct ids. Nothing is extrapolated when all samples were read.
    """
    seen = len(counts) / share
    once, twice = float((counts == 1).sum()) / share, float((counts == 2).sum()) / share
    noise = _SIGMAS * math.sqrt(seen * (1 / share - 1)) if share < 1 else 0.0
    if samples <= read or once == 0:
        return DistinctCounts(seen, seen, seen - noise, seen + noise)
    max_distinct = seen + samples - read
    low, high = (max(0.0, once + sign * _SIGMAS * math.sqrt(once / share)) for sign in (-1, 1))
    pairs = twice + _SIGMAS * math.sqrt(twice / share)
    lower = min(_chao(seen, low, pairs, read, samples) - noise, max_distinct)
    upper = min(max(power_law(seen, high, read, samples), lower) + noise, max_distinct)
    middle = _bounded_zipf(counts, seen, once, read, samples)
    return DistinctCounts(seen, min(max(middle, lower), upper), lower, upper)


def power_law(seen: float, once: float, read: int, samples: int) -> float:
    """Return S·(N/n)^(f1/S), but at most S + f1·(N - n)/n, which the present rate of new ids gives."""
    exponent = min(once / seen, 1.0)
    growth: float = (samples / read) ** exponent
    return min(seen * growth, seen + once * (samples - read) / read)


def _chao(seen: float, once: float, twice: float, read: int, samples: int) -> float:
    pairs = once * once / (2 * twice) if twice > 0 else once * max(once - 1, 0) / 2
    unseen = (read - 1) / read * pairs
    if unseen <= 0 or once <= 0:
        return seen
    return seen - unseen * math.expm1((samples - read) * math.log1p(-once / (read * unseen + once)))


def _bounded_zipf(counts: NDArray[np.int64], seen: float, once: float, read: int, samples: int) -> float:
    from scipy.optimize import least_squares

    observed = np.log([*(_rarefied(counts, seen, part) for part in _PARTS), once])

    def residuals(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        exponent, log_size = parameters
        distinct, single = _expected(exponent, log_size, np.array([part * read for part in _PARTS]))
        residual: NDArray[np.float64] = np.log([*distinct, max(single[0], 1e-9)]) - observed
        return residual

    bounds = ([0.0, math.log(max(seen, 1.0))], [4.0, math.log(1e15)])
    starts = [(exponent, bounds[0][1] + more) for exponent in (0.3, 1.05) for more in (0.1, 2.0)]
    fits = [least_squares(residuals, start, bounds=bounds, max_nfev=60) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost))
    distinct, _ = _expected(best.x[0], best.x[1], np.array([read, samples], dtype=float))
    return float(seen * distinct[1] / distinct[0])


def _rarefied(counts: NDArray[np.int64], seen: float, part: float) -> float:
    """Return the expected distinct ids in a random part of the sample, each id's samples kept independently."""
    if part == 1.0:
        return seen
    times, ids = np.unique(counts, return_counts=True)
    return float(seen * (1 - np.average((1 - part) ** times.astype(float), weights=ids)))


def _expected(
    exponent: float, log_size: float, samples: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return E[S] and E[f1] at each number of samples, by the trapezoid rule over log rank."""
    log_rank = np.linspace(0.0, np.logaddexp(log_size, 0.0), _GRID)
    weights = np.gradient(log_rank)
    weights[[0, -1]] /= 2
    width = weights * np.exp(log_rank)
    density = np.exp(-exponent * log_rank)
    hits = samples[:, None] * density / (width * density).sum()
    return (width * -np.expm1(-hits)).sum(axis=1), (width * hits * np.exp(-hits)).sum(axis=1)
