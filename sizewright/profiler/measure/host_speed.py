"""Measure the current speed of this host, so that trials of different hours can be compared."""

from __future__ import annotations

import time

import numpy as np

_REFERENCE_S = 0.001  # one round on the reference host, so that speeds are near 1


def measure_host_speed(rounds: int = 15) -> float:
    """Return the speed of a fixed mix of arithmetic and gathering on one core; about 1.0 on the reference host.

    Takes about 0.05 s. The best of `rounds` counts, since interruptions only slow a round down. Nothing else may train
    meanwhile.
    """
    rng = np.random.default_rng(0)
    numbers, result = rng.random(200_000, np.float32), np.empty(200_000, np.float32)
    table, rows = rng.random((200_000, 16), np.float32), rng.integers(0, 200_000, 20_000)
    gathered = np.empty((len(rows), 16), np.float32)
    best = np.inf
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(4):
            np.sqrt(numbers, out=result)
            np.multiply(numbers, result, out=result)
            np.take(table, rows, axis=0, out=gathered)
        best = min(best, time.perf_counter() - start)
    return _REFERENCE_S / float(best)
