"""The exact Pareto set of two objectives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pareto_front(gain: NDArray[np.float64], cost: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rows (k,) that no other beats: more `gain` (n,) for no more `cost` (n,); in order of cost.

    Sorted by cost once, a row belongs if its gain is above all before it: O(n log n). Of equal rows one stays.
    """
    order = np.lexsort((-gain, cost))
    before = np.maximum.accumulate(np.concatenate(([-np.inf], gain[order][:-1])))
    return order[gain[order] > before].astype(np.int64)
