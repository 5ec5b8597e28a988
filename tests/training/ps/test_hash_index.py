from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.models.memory.memory_model import index_bytes
from sizewright.training.ps.hash_index import HashIndex, places_for

KEYS = st.one_of(st.integers(0, 40), st.integers(0, 2**62))
BATCHES = st.lists(st.lists(KEYS, unique=True, max_size=60), max_size=12)


def add(index: HashIndex, keys: list[int]) -> tuple[list[int], int]:
    slots, new = index.find_or_add(np.array(keys, np.int64))
    return slots.tolist(), len(new)


@settings(max_examples=150, deadline=None)
@given(batches=BATCHES, expected=st.sampled_from([0, 3, 5000]))
def test_index_numbers_keys_in_order_of_arrival(batches: list[list[int]], expected: int) -> None:
    index, known = HashIndex(expected), dict[int, int]()
    for keys in batches:
        before = len(known)
        for key in keys:
            known.setdefault(key, len(known))
        assert add(index, keys) == ([known[key] for key in keys], len(known) - before)
        assert index.size == len(known)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=8))
def test_growth_keeps_every_row_number(seed: int, sizes: list[int]) -> None:
    rng, index, known = np.random.default_rng(seed), HashIndex(), dict[int, int]()
    for size in sizes:
        keys = np.unique(rng.integers(0, 20_000, size)).tolist()
        for key in keys:
            known.setdefault(key, len(known))
        add(index, keys)
    everything = list(known)
    assert add(index, everything) == (list(known.values()), 0)


def test_colliding_keys_get_different_rows() -> None:
    """With 1024 places the 10 high bits of key·multiplier choose: keys that share them collide."""
    multiplier, inverse = 0x9E3779B97F4A7C15, pow(0x9E3779B97F4A7C15, -1, 2**64)
    rivals = [k * inverse % 2**64 for k in range(1, 2000)]
    rivals = [key for key in rivals if key < 2**63][:300]
    assert {key * multiplier % 2**64 >> 54 for key in rivals} == {0}
    index = HashIndex()
    assert add(index, rivals) == (list(range(300)), 300)
    assert add(index, rivals[::-1]) == (list(range(299, -1, -1)), 0)


@pytest.mark.parametrize("rows", [1, 511, 512, 513, 1000, 1024, 1025, 70_000])
def test_bytes_match_the_memory_model(rows: int) -> None:
    index = HashIndex()
    for start in range(0, rows, 300):
        add(index, list(range(start, min(start + 300, rows))))
        assert index.nbytes + index.size == index_bytes(np.array(float(index.size)))
    assert HashIndex(rows).nbytes == index.nbytes - rows * 8


@given(rows=st.integers(0, 10**9))
def test_capacity_is_a_power_of_two_at_most_half_full(rows: int) -> None:
    places = places_for(rows)
    assert places & (places - 1) == 0
    assert rows <= places / 2
    assert places == 1024 or rows > places / 4


def test_known_keys_do_not_grow_the_index() -> None:
    index, rows = HashIndex(), list(range(512))
    keys = np.random.default_rng(0).choice(10**9, 513, replace=False).tolist()
    last = keys.pop()
    assert add(index, keys) == (rows, 512)
    before = index.nbytes
    assert add(index, keys) == (rows, 0)
    assert add(index, keys[::-1]) == (rows[::-1], 0)
    assert index.nbytes == before
    assert add(index, [last]) == ([512], 1)
    assert index.nbytes - 513 * 8 == 2 * (before - 512 * 8)


@settings(max_examples=80, deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 60), unique=True, max_size=40)), max_size=25))
def test_removed_keys_are_forgotten_and_others_keep_their_rows(steps: list[tuple[bool, list[int]]]) -> None:
    index, known = HashIndex(), dict[int, int]()
    for adding, keys in steps:
        if adding:
            slots, new = index.find_or_add(np.array(keys, np.int64))
            slot_of = dict(zip(keys, slots.tolist(), strict=True))
            assert {key: row for key, row in slot_of.items() if key in known} == {
                k: known[k] for k in keys if k in known
            }
            assert sorted(new.tolist()) == sorted(row for key, row in slot_of.items() if key not in known)
            known |= slot_of
        else:
            mine = [key for key in keys if key in known]
            freed = index.remove(np.array(mine, np.int64)).tolist()
            assert freed == [known.pop(key) for key in mine]
        assert index.size == len(known) == len(set(known.values()))
        everything = np.array([*known, 999], np.int64)
        assert index.find(everything).tolist() == [*known.values(), -1]
        assert index.keys_of(np.array([*known.values()], np.int64)).tolist() == [*known]


def test_repeated_removal_and_insertion_does_not_grow_the_index() -> None:
    index, rng = HashIndex(), np.random.default_rng(0)
    for _ in range(300):
        keys = rng.choice(10**9, 400, replace=False)
        index.find_or_add(keys)
        index.remove(keys)
    assert index.size == 0
    assert index.top == 400
    assert index.nbytes == HashIndex().nbytes + 400 * 8
