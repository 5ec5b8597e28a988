"""Measured peaks of memory: a line above all of them, and the probability that a limit is exceeded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from sizewright.spec import Role

Floats = NDArray[np.float64]

# Standard deviation of log peaks before any measurement, and the smallest one afterwards.
_UNKNOWN_SD, _MIN_SD = 0.15, 0.02


def plane_over(peaks: Floats, *axes: Floats) -> tuple[float, ...]:
    """Return the base and a slope for each axis, all at least 0, of a plane over all peaks (n,), NaN where unknown.

    The slope of an axis (n,) is 0 where all of its values with a peak are equal.
    """
    measured = np.isfinite(peaks)
    if not measured.any():
        return 0.0, *(0.0 for _ in axes)
    peaks, known = peaks[measured], [axis[measured] for axis in axes]
    varied = [np.ptp(axis) > 0 for axis in known]
    if not any(varied):
        return float(peaks.max()), *(0.0 for _ in axes)
    from scipy.optimize import nnls  # takes half a second to import

    terms = np.column_stack([np.ones_like(peaks), *(axis * on for axis, on in zip(known, varied, strict=True))])
    coefficients, _ = nnls(terms, peaks)
    base = coefficients[0] + max(0.0, (peaks - terms @ coefficients).max())
    return float(base), *map(float, coefficients[1:])


def log_errors(peaks: Floats, predicted: Floats) -> Floats:
    """Return the logarithms of measured over predicted peaks, where a peak was measured."""
    measured = np.isfinite(peaks) & (peaks > 0) & (predicted > 0)
    return np.asarray(np.log(peaks[measured] / predicted[measured]))


def oom_probability(limit_bytes: float, predicted_bytes: float, log_errors: Floats) -> float:
    """Return the probability that a peak exceeds its limit, given the logarithms of measured over predicted peaks (n,).

    The logarithm of another peak is Student's t around their mean (n − 1 degrees, the usual prediction interval);
    with fewer than two, a standard deviation of 15 % is assumed.
    """
    count = len(log_errors)
    log_margin = np.log(limit_bytes / predicted_bytes) - (float(log_errors.mean()) if count else 0.0)
    if count < 2:
        return float(1 - stdtr(3, log_margin / _UNKNOWN_SD))
    deviation = max(float(log_errors.std(ddof=1)), _MIN_SD) * np.sqrt(1 + 1 / count)
    return float(1 - stdtr(count - 1, log_margin / deviation))


class MeasuredPeaks:
    """The base of memory models whose predictions were compared with measured peaks."""

    log_errors: dict[Role, Floats]
    """Logarithms of measured over predicted peaks."""

    def oom_probability(self, role: Role, limit_bytes: float, predicted_bytes: float) -> float:
        """Return the probability that a replica of the role exceeds its limit, given its predicted peak."""
        return oom_probability(limit_bytes, predicted_bytes, self.log_errors.get(role, np.empty(0)))
