"""Trials of different hours, brought to one speed of the host: throughput / (speed / usual speed)^β."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.models.axes import Axes, allocations_of

Floats = NDArray[np.float64]

_LEAST_PAIRS = 4
_MOST = 1.5


def speed_exponent(axes: Axes, log_rates: Floats, speed: Floats) -> float:
    """β, by least squares over allocations that were measured more than once, and 0 unless it tells them better.

    Better means that the deviations of an allocation's repeats, foretold by β of the others', vary less than untold.
    """
    x, y, group = _deviations(axes, log_rates, speed)
    if len(x) < _LEAST_PAIRS or not (x @ x) > 0:
        return 0.0
    without = (x @ y - _sum_of(x * y, group)) / np.maximum(x @ x - _sum_of(x * x, group), 1e-12)
    if ((y - np.clip(without, 0.0, _MOST) * x) ** 2).sum() >= (y**2).sum():
        return 0.0
    return float(np.clip(x @ y / (x @ x), 0.0, _MOST))


def at_usual_speed(axes: Axes, log_rates: Floats, speed: Floats) -> tuple[Floats, float]:
    """Logarithms of rates as they would be at the trials' median speed, and β."""
    told = np.isfinite(speed) & (speed > 0)
    if not told.any():
        return log_rates, 0.0
    speed = np.where(told, speed, np.median(speed[told]))
    exponent = speed_exponent(axes, log_rates, speed)
    return log_rates - exponent * np.log(speed / np.median(speed)), exponent


def _sum_of(values: Floats, group: NDArray[np.int64]) -> Floats:
    """Of each one's group (n,)."""
    return np.asarray(np.bincount(group, values)[group])


def _deviations(axes: Axes, log_rates: Floats, speed: Floats) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Of repeats from the mean of their allocation: log speed, log rate, and which allocation."""
    _, group = np.unique(allocations_of(axes), axis=0, return_inverse=True)
    counts = np.bincount(group)
    logs = np.log(speed)
    x = logs - (np.bincount(group, logs) / counts)[group]
    y = log_rates - (np.bincount(group, log_rates) / counts)[group]
    repeated = counts[group] > 1
    return x[repeated], y[repeated], group[repeated]
