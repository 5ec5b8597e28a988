from __future__ import annotations

import numpy as np
import pytest

from sizewright.training.ps.access_counts import AccessCounts
from sizewright.training.ps.routing import PARTITIONS, partition_of

EARLIER, LATER = np.array([1, 2, 3, 2048]), np.array([7, 8])


def counted(keys: np.ndarray, times: int) -> np.ndarray:
    return times * np.bincount(partition_of(keys), minlength=PARTITIONS)


def after(earlier: int, later: int = 0) -> np.ndarray:
    """Pull each set of keys a given number of times."""
    recent = AccessCounts()
    for keys, pulls in ((EARLIER, earlier), (LATER, later)):
        for _ in range(pulls):
            recent.add([keys[:1], keys[1:]])
    return recent.total()


def test_every_eighth_pull_counts() -> None:
    np.testing.assert_array_equal(after(7), counted(EARLIER, 0))
    np.testing.assert_array_equal(after(15), counted(EARLIER, 1))


@pytest.mark.parametrize("earlier", [8, 128, 1000])
def test_counts_follow_popularity_within_25_pulls(earlier: int) -> None:
    before, now = (after(earlier, 32)[partition_of(keys[:1])][0] for keys in (EARLIER, LATER))
    assert now > before
    assert not after(earlier, 256)[partition_of(EARLIER)].any()
    assert after(earlier, 256)[partition_of(LATER[:1])][0] == 5
