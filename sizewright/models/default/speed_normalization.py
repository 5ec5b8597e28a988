"""Trials of different hours, normalized to one speed of the host: throughput / (speed / median speed)^β."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.models.axes import Axes, allocations_of

Floats = NDArray[np.float64]

_MIN_REPEATS = 4
_MAX_EXPONENT = 1.5


def normalize_host_speed(axes: Axes, log_rates: Floats, speed: Floats) -> tuple[Floats, float]:
    """Return log rates (n,) as they would be at the trials' median speed, and the exponent β.

    Trials without a speed count as run at the median.
    """
    known = np.isfinite(speed) & (speed > 0)
    if not known.any():
        return log_rates, 0.0
    speed = np.where(known, speed, np.median(speed[known]))
    exponent = speed_exponent(axes, log_rates, speed)
    return log_rates - exponent * np.log(speed / np.median(speed)), exponent


def speed_exponent(axes: Axes, log_rates: Floats, speed: Floats) -> float:
    """Return β by least squares over allocations that were measured more than once; 0 unless it predicts better.

    It does where each deviation of a repeat, predicted with the β of all other allocations, varies less than without.
    """
    _, group = np.unique(allocations_of(axes), axis=0, return_inverse=True)
    counts = np.bincount(group)
    log_speed = np.log(speed)
    repeated = counts[group] > 1
    x = (log_speed - (np.bincount(group, log_speed) / counts)[group])[repeated]
    y = (log_rates - (np.bincount(group, log_rates) / counts)[group])[repeated]
    group = group[repeated]
    if len(x) < _MIN_REPEATS or not (x @ x) > 0:
        return 0.0
    others_xy = x @ y - np.bincount(group, x * y)[group]
    others_xx = x @ x - np.bincount(group, x * x)[group]
    exponent_of_others = np.clip(others_xy / np.maximum(others_xx, 1e-12), 0.0, _MAX_EXPONENT)
    if ((y - exponent_of_others * x) ** 2).sum() >= (y**2).sum():
        return 0.0
    return float(np.clip(x @ y / (x @ x), 0.0, _MAX_EXPONENT))
