from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.models.memory import largest_partition
from sizewright.training.embedding import TABLE_SHIFT
from sizewright.training.partition import dense_slices, make_lookup, owner_of

KEYS = st.lists(st.integers(0, 2**62), max_size=80)


@settings(max_examples=100, deadline=None)
@given(keys=KEYS, ps=st.integers(1, 9))
def test_every_key_has_one_owner_wherever_it_is_asked(keys: list[int], ps: int) -> None:
    array = np.array(keys, np.int64)
    owners = owner_of(array, ps)
    assert ((owners >= 0) & (owners < ps)).all()
    alone = [int(owner_of(array[i : i + 1], ps)[0]) for i in range(len(keys))]
    assert owners.tolist() == alone


@settings(max_examples=100, deadline=None)
@given(keys=KEYS, ps=st.integers(1, 9))
def test_a_lookup_gives_the_keys_back_grouped_by_owner(keys: list[int], ps: int) -> None:
    array = np.array(keys, np.int64)
    lookup = make_lookup(array, ps)
    np.testing.assert_array_equal(lookup.keys[lookup.inverse], array)
    assert sorted(lookup.keys.tolist()) == sorted(set(keys))
    assert len(lookup.counts) == ps
    assert owner_of(lookup.keys, ps).tolist() == np.repeat(np.arange(ps), lookup.counts).tolist()


@given(size=st.integers(0, 10_000), ps=st.integers(1, 64))
def test_dense_slices_cover_the_vector_once_and_evenly(size: int, ps: int) -> None:
    slices = dense_slices(size, ps)
    assert np.concatenate([np.arange(size)[part] for part in slices]).tolist() == list(range(size))
    lengths = [part.stop - part.start for part in slices]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("ps", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("tables", [1, 26])
def test_shares_are_even_and_within_what_the_memory_model_allows(tables: int, ps: int) -> None:
    rows = 20_000
    keys = (np.arange(rows, dtype=np.int64) + (np.arange(tables, dtype=np.int64)[:, None] << TABLE_SHIFT)).ravel()
    held = np.bincount(owner_of(keys, ps), minlength=ps)
    assert held.sum() == keys.size
    assert held.max() <= largest_partition(float(keys.size), np.array(float(ps)))
