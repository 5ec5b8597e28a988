"""When a run is steady, told by its own reports: no fixed number of steps or seconds fits all code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Series = Sequence[tuple[float, int]]
"""One replica's reports in order: when (seconds), and all its samples so far."""

_LEAST_BLOCK_S = 0.25
_REPORTS_A_BLOCK = 2.0
_LEAST_BLOCKS = 6
_DRIFT_ERRORS, _DRIFT_SHARE = 3.0, 0.03


class Steady(NamedTuple):
    """From when on it is steady, samples/s since, their standard error, and until when was looked."""

    since_s: float
    rate: float
    rate_se: float
    until_s: float


def find_steady(series: Sequence[Series], start_s: float) -> Steady | None:
    """Cut the warm-up off reports since `start_s`; None while it is not over, or too little has been reported.

    Marginal standard error rule (White, "An effective truncation heuristic", 1997): the cut is where the standard
    error of the mean rate of what is left is least. A cut in the second half says that it is not steady yet, and so do
    halves of what is left whose means differ beyond noise.
    """
    blocks = block_rates(series, start_s)
    if blocks is None:
        return None
    edges, rates = blocks
    count = len(rates)
    errors = [rates[cut:].std() / np.sqrt(count - cut) for cut in range(count // 2 + 1)]
    cut = int(np.argmin(errors))
    kept = rates[cut:]
    if cut >= count // 2 or len(kept) < _LEAST_BLOCKS or kept.mean() <= 0 or _drifts(kept):
        return None
    error = float(kept.std(ddof=1) / np.sqrt(len(kept)))
    return Steady(float(edges[cut]), float(kept.mean()), error, float(edges[-1]))


def block_rates(series: Sequence[Series], start_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Edges (n + 1,) and samples/s (n,) of equal blocks in which every replica has reported some twice.

    Between two reports samples are taken to have come evenly. None where fewer than six blocks can be made.
    """
    arrays = [np.array([(at, count) for at, count in told if at >= start_s], float) for told in series]
    if not arrays or min(map(len, arrays)) < 2:
        return None
    begin, end = max(told[0, 0] for told in arrays), min(told[-1, 0] for told in arrays)
    longest = max(float(np.median(np.diff(told[:, 0]))) for told in arrays)
    count = int((end - begin) / max(_LEAST_BLOCK_S, _REPORTS_A_BLOCK * longest))
    if count < _LEAST_BLOCKS:
        return None
    edges = np.linspace(begin, end, count + 1)
    counts = sum(np.interp(edges, told[:, 0], told[:, 1]) for told in arrays)
    return edges, np.diff(counts) / np.diff(edges)


def _drifts(rates: NDArray[np.float64]) -> bool:
    first, second = np.array_split(rates, 2)
    error = np.hypot(first.std() / np.sqrt(len(first)), second.std() / np.sqrt(len(second)))
    difference = abs(first.mean() - second.mean())
    return bool(difference > max(_DRIFT_ERRORS * error, _DRIFT_SHARE * rates.mean()))
