from __future__ import annotations

import numpy as np
import pytest

from sizewright.training.ps.access_counts import AccessCounts
from sizewright.training.ps.routing import PARTITIONS, partition_of

EARLIER, LATER = np.array([1, 2, 3, 2048]), np.array([7, 8])


def counted(keys: np.ndarray, times: int) -> np.ndarray:
    return times * np.bincount(partition_of(keys), minlength=PARTITIONS)


def after(earlier: int, later: int = 0, batch_ids: int = 1) -> np.ndarray:
    """Pull each set of keys a given number of times."""
    recent = AccessCounts(batch_ids)
    for keys, pulls in ((EARLIER, earlier), (LATER, later)):
        for _ in range(pulls):
            recent.add([keys[:1], keys[1:]])
    return recent.total()


def test_every_eighth_pull_counts() -> None:
    np.testing.assert_array_equal(after(7), counted(EARLIER, 0))
    np.testing.assert_array_equal(after(15), counted(EARLIER, 1))


@pytest.mark.parametrize("earlier", [8, 128, 1000])
@pytest.mark.parametrize(("batch_ids", "pulls", "samples"), [(50_000, 32, 4), (2000, 104, 16), (100, 200, 32)])
def test_counts_follow_popularity_the_sooner_the_more_ids_a_batch_has(
    earlier: int, batch_ids: int, pulls: int, samples: int
) -> None:
    before, now = (after(earlier, pulls, batch_ids)[partition_of(keys[:1])][0] for keys in (EARLIER, LATER))
    assert now > before
    latest = after(earlier, 4000, batch_ids)
    assert not latest[partition_of(EARLIER)].any()
    assert latest[partition_of(LATER[:1])][0] == pytest.approx(samples, abs=1)
