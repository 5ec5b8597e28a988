"""The exact Pareto set of two objectives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pareto_front(gain: NDArray[np.float64], cost: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the rows (k,) that no other row dominates, in order of cost.

    A row is dominated by one with more `gain` (n,) for no more `cost` (n,). Of equal rows, one is returned. After
    sorting by cost, a row belongs to the set if its gain is above all gains before it: O(n log n).
    """
    order = np.lexsort((-gain, cost))
    best_before = np.maximum.accumulate(np.concatenate(([-np.inf], gain[order][:-1])))
    return order[gain[order] > best_before].astype(np.int64)


def thinned(front: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return at most `count` rows of a front (k,), evenly spaced, with the first and the last."""
    if len(front) <= count:
        return front
    return np.asarray(front[np.unique(np.linspace(0, len(front) - 1, count).round().astype(int))])
