"""Which partitions are asked for, of late."""

from __future__ import annotations

import numpy as np

from sizewright.training.hash_index import Keys
from sizewright.training.routing import PARTITIONS, Counts, partition_of

# Counting takes a tenth of a pull; the shares show in every eighth pull as well.
_PULLS_A_COUNT = 8
_KEPT = 16


class RecentCounts:
    """Look-ups by partition in the last 128 to 256 pulls: what was popular before is of no use any more.

    Servers of one job have about as many pulls, so that their counts are of the same time.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """A new routing begins."""
        self._pulls = 0
        self._now = np.zeros(PARTITIONS, np.int64)
        self._before = np.zeros(PARTITIONS, np.int64)

    def add(self, keys: Keys) -> None:
        """The distinct keys of a pull."""
        self._pulls += 1
        if self._pulls % _PULLS_A_COUNT:
            return
        self._now += np.bincount(partition_of(keys), minlength=PARTITIONS)
        if self._pulls % (_KEPT * _PULLS_A_COUNT) == 0:
            self._before, self._now = self._now, np.zeros(PARTITIONS, np.int64)

    def total(self) -> Counts:
        """(PARTITIONS,)."""
        counts: Counts = self._before + self._now
        return counts
