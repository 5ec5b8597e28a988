"""Recent look-ups of each partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.routing import PARTITIONS, Counts, partition_of

# Counting takes a tenth of a pull; the shares show in every eighth pull as well.
_PULLS_PER_SAMPLE = 8
_SAMPLES_PER_WINDOW = 16


class AccessCounts:
    """Counts look-ups by partition over the last 128 to 256 pulls, so that old popularity is forgotten.

    Servers of one job serve about equally many pulls, so their counts cover the same time.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all counts, because a new routing begins."""
        self._pulls = 0
        self._window = np.zeros(PARTITIONS, np.int64)
        self._previous_window = np.zeros(PARTITIONS, np.int64)

    def add(self, keys: Sequence[Keys]) -> None:
        """Take the distinct keys of a pull, arrays (n,); every eighth pull is counted."""
        self._pulls += 1
        if self._pulls % _PULLS_PER_SAMPLE:
            return
        for some in keys:
            self._window += np.bincount(partition_of(some), minlength=PARTITIONS)
        if self._pulls % (_SAMPLES_PER_WINDOW * _PULLS_PER_SAMPLE) == 0:
            self._previous_window = self._window
            self._window = np.zeros(PARTITIONS, np.int64)

    def total(self) -> Counts:
        """Return the recent look-ups of each partition (PARTITIONS,)."""
        counts: Counts = self._previous_window + self._window
        return counts
