"""Recent look-ups of each partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.routing import PARTITIONS, Counts, partition_of

# Counting takes a tenth of a pull; the shares show in every eighth pull as well.
_PULLS_PER_SAMPLE = 8
_ENOUGH_IDS = 16 * PARTITIONS
"""With this many ids in the latest pulls of all servers together, the loads of the partitions are known well enough."""
_MIN_SAMPLES, _MAX_SAMPLES = 4, 32


class AccessCounts:
    """Counts recent look-ups by partition; those of earlier pulls count less and less.

    Where a pull has many ids (`batch_ids`, before they are divided among the servers), few pulls are enough. The fewer
    they are, the sooner a change of popularity shows.

    Servers of one job serve about equally many pulls, so their counts cover the same time.
    """

    def __init__(self, batch_ids: float) -> None:
        samples = min(max(_ENOUGH_IDS / batch_ids, _MIN_SAMPLES), _MAX_SAMPLES)
        self._kept = 1 - 1 / samples
        """Share of the counts that the next sample keeps."""
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
        self._counts *= self._kept
        for some in keys:
            self._counts += np.bincount(partition_of(some), minlength=PARTITIONS)

    def total(self) -> Counts:
        """Return the recent look-ups of each partition (PARTITIONS,)."""
        counts: Counts = np.rint(self._counts).astype(np.int64)
        return counts
