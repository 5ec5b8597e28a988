"""The batch per worker where a table has none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sizewright.models.table import batch_sizes
from sizewright.spec import Job

COUNTS = st.lists(st.integers(1, 64), min_size=1, max_size=20)


@given(COUNTS, st.integers(1, 10**6))
def test_batch_per_worker_is_that_of_the_job(counts: list[int], size: int) -> None:
    workers = np.array(counts, float)
    assert (batch_sizes(Job().with_batch_size(size), workers) == size).all()
    shared = Job.model_validate({"training": {"global_batch_size": size}})
    sizes = batch_sizes(shared, workers)
    for count, each in zip(counts, sizes, strict=True):
        assert each == shared.batch_size_for(count)
        assert each * count == size or not shared.splits_batch(count)


def test_an_unknown_number_of_workers_counts_as_one() -> None:
    shared = Job.model_validate({"training": {"global_batch_size": 64}})
    assert batch_sizes(shared, np.array([np.nan, 4.0])).tolist() == [64.0, 16.0]
