"""Find when a run is steady from its own reports: no fixed number of steps or seconds fits all code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Series = Sequence[tuple[float, int]]
"""The reports of one replica in order: time in seconds, and its samples so far."""

_MIN_BLOCK_S = 0.25
_REPORTS_PER_BLOCK = 2.0
_MIN_BLOCKS = 6
_MAX_DRIFT_ERRORS = 3.0  # difference of the two halves, in standard errors
_MAX_DRIFT_SHARE = 0.03  # or as a share of the mean rate


class SteadyState(NamedTuple):
    """When a run became steady, its samples/s since, their standard error, and the end of the observation."""

    since_s: float
    rate: float
    rate_se: float
    until_s: float


def find_steady(series: Sequence[Series], start_s: float) -> SteadyState | None:
    """Cut the warm-up off the reports since `start_s`; return None during warm-up, or with too few reports.

    Marginal standard error rule (White, "An effective truncation heuristic", 1997): the cut minimises the standard
    error of the mean rate after it. The run is not steady yet if the cut is in the second half, or if the means of the
    two halves after the cut differ beyond noise.
    """
    blocks = block_rates(series, start_s)
    if blocks is None:
        return None
    edges, rates = blocks
    count = len(rates)
    errors = [rates[cut:].std() / np.sqrt(count - cut) for cut in range(count // 2 + 1)]
    cut = int(np.argmin(errors))
    kept = rates[cut:]
    if cut >= count // 2 or len(kept) < _MIN_BLOCKS or kept.mean() <= 0 or _drifts(kept):
        return None
    error = float(kept.std(ddof=1) / np.sqrt(len(kept)))
    return SteadyState(float(edges[cut]), float(kept.mean()), error, float(edges[-1]))


def block_rates(series: Sequence[Series], start_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the edges (n + 1,) and samples/s (n,) of equal blocks with about two reports of every replica.

    Samples are interpolated linearly between reports. None if there are fewer than six blocks.
    """
    arrays = [np.array([(at, count) for at, count in reports if at >= start_s], float) for reports in series]
    if not arrays or min(map(len, arrays)) < 2:
        return None
    begin = max(reports[0, 0] for reports in arrays)
    end = min(reports[-1, 0] for reports in arrays)
    longest_interval = max(float(np.median(np.diff(reports[:, 0]))) for reports in arrays)
    count = int((end - begin) / max(_MIN_BLOCK_S, _REPORTS_PER_BLOCK * longest_interval))
    if count < _MIN_BLOCKS:
        return None
    edges = np.linspace(begin, end, count + 1)
    counts = sum(np.interp(edges, reports[:, 0], reports[:, 1]) for reports in arrays)
    return edges, np.diff(counts) / np.diff(edges)


def _drifts(rates: NDArray[np.float64]) -> bool:
    first, second = np.array_split(rates, 2)
    error = np.hypot(first.std() / np.sqrt(len(first)), second.std() / np.sqrt(len(second)))
    difference = abs(first.mean() - second.mean())
    return bool(difference > max(_MAX_DRIFT_ERRORS * error, _MAX_DRIFT_SHARE * rates.mean()))
