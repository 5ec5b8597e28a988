"""Recent look-ups of each partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.routing import PARTITIONS, Counts, partition_of

# Counting takes a tenth of a pull; the shares show in every eighth pull as well.
_PULLS_PER_SAMPLE = 8
_KEPT = 0.8
"""Share of the counts that the next sample keeps: they halve in 25 pulls, so that few are from before a PS got hot."""


class AccessCounts:
    """Counts recent look-ups by partition; those of earlier pulls count less and less.

    Servers of one job serve about equally many pulls, so their counts cover the same time.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all counts, because a new routing begins."""
        self._pulls = 0
        self._counts = np.zeros(PARTITIONS)

    def add(self, keys: Sequence[Keys]) -> None:
        """Take the distinct keys of a pull, arrays (n,); every eighth pull is counted."""
        self._pulls += 1
        if self._pulls % _PULLS_PER_SAMPLE:
            return
        self._counts *= _KEPT
        for some in keys:
            self._counts += np.bincount(partition_of(some), minlength=PARTITIONS)

    def total(self) -> Counts:
        """Return the recent look-ups of each partition (PARTITIONS,)."""
        counts: Counts = np.rint(self._counts).astype(np.int64)
        return counts
