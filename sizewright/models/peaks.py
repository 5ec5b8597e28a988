"""What measured peaks of memory tell: a line that none lies above, and how likely a limit is to be broken."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

Floats = NDArray[np.float64]

# Before anything was measured, and the least after.
_UNKNOWN_SD, _LEAST_SD = 0.15, 0.02


def line_over(x: Floats, peaks: Floats) -> tuple[float, float]:
    """Base and slope, neither below 0, over the peaks (n,), NaN where unknown; a slope only where x (n,) differs."""
    there = np.isfinite(peaks)
    if not there.any():
        return 0.0, 0.0
    x, peaks = x[there], peaks[there]
    if np.ptp(x) == 0:
        return float(peaks.max()), 0.0
    from scipy.optimize import nnls  # half a second, which few need

    (base, slope), _ = nnls(np.column_stack([np.ones_like(x), x]), peaks)
    return float(base + max(0.0, (peaks - base - slope * x).max())), float(slope)


def log_errors(peaks: Floats, predicted: Floats) -> Floats:
    """Logarithms of measured over predicted peaks, of those that were measured."""
    there = np.isfinite(peaks) & (peaks > 0) & (predicted > 0)
    return np.asarray(np.log(peaks[there] / predicted[there]))


def oom_probability(limit_bytes: float, predicted_bytes: float, log_errors: Floats) -> float:
    """That a replica's peak exceeds its limit, given the logarithms of measured over predicted peaks (n,).

    Another peak over its prediction is Student's t around their mean (n − 1 degrees, the usual prediction interval);
    with fewer than two, a standard deviation of 15 % is assumed.
    """
    count = len(log_errors)
    gap = np.log(limit_bytes / predicted_bytes) - (float(log_errors.mean()) if count else 0.0)
    if count < 2:
        return float(1 - stdtr(3, gap / _UNKNOWN_SD))
    deviation = max(float(log_errors.std(ddof=1)), _LEAST_SD) * np.sqrt(1 + 1 / count)
    return float(1 - stdtr(count - 1, gap / deviation))
