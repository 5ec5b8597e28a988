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
    np.testing.assert_array_equal(after(40), counted(EARLIER, 5))


@pytest.mark.parametrize("earlier", [1, 127, 128, 1000])
def test_counts_follow_popularity_within_256_pulls_and_list_128_rows(earlier: int) -> None:
    assert not after(earlier, 256)[partition_of(EARLIER)].any()
    for later in (128, 150, 255, 700):
        assert after(earlier, later)[partition_of(LATER[:1])][0] >= 16
