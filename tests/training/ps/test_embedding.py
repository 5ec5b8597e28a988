from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.models.memory.memory_model import index_bytes, row_bytes
from sizewright.spec import Optimizer
from sizewright.training.ps.embedding import TABLE_SHIFT, EmbeddingStore, make_keys
from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.optimizers import RULES, Sgd, make_rule
from tests.helpers.training_parts import as_list, small_job


def keys(*ids: int) -> Keys:
    return np.array(ids, np.int64)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**TABLE_SHIFT - 1), min_size=3, max_size=3), min_size=1, max_size=20))
def test_key_encodes_table_and_id(rows: list[list[int]]) -> None:
    ids = np.array(rows, np.int64)
    keys = make_keys(ids).reshape(ids.shape)
    np.testing.assert_array_equal(keys >> TABLE_SHIFT, np.tile([0, 1, 2], (len(rows), 1)))
    np.testing.assert_array_equal(keys & (2**TABLE_SHIFT - 1), ids)


def test_rows_appear_with_their_ids_and_keep_their_values() -> None:
    store = EmbeddingStore(4, Sgd(1.0))
    assert store.rows == 0
    first = store.locate(keys(7, 3))
    values = store.read(first)
    assert store.rows == 2
    again = store.locate(keys(3, 9, 7))
    assert store.rows == 3
    assert as_list(again) == [as_list(first)[1], 2, as_list(first)[0]]
    np.testing.assert_array_equal(store.read(again)[[2, 0]], values)


def test_new_rows_are_drawn_within_one_over_the_root_of_the_width() -> None:
    store = EmbeddingStore(16, Sgd(1.0), seed=3)
    values = store.read(store.locate(np.arange(2000, dtype=np.int64)))
    assert np.abs(values).max() <= 0.25
    assert values.std() == pytest.approx(0.5 / np.sqrt(12), rel=0.02)
    assert np.unique(values[:, 0]).size > 1900
    twin = EmbeddingStore(16, Sgd(1.0), seed=3)
    np.testing.assert_array_equal(twin.read(twin.locate(np.arange(2000, dtype=np.int64))), values)


@pytest.mark.parametrize("name", sorted(RULES))
def test_only_rows_with_a_gradient_move(name: str) -> None:
    store = EmbeddingStore(3, make_rule(Optimizer(name=name, learning_rate=0.1)))
    slots = store.locate(keys(*range(10)))
    before = store.read(slots)
    store.update(slots[[8, 2]], np.ones((2, 3), np.float32))
    moved = (store.read(slots) != before).any(axis=1)
    assert np.flatnonzero(moved).tolist() == [2, 8]
    assert (store.read(slots)[[2, 8]] < before[[2, 8]]).all()


def test_optimizer_state_belongs_to_its_row() -> None:
    """Adagrad's first step with gradient 1 is the rate, its second of the same row the rate over the root of 2."""
    store = EmbeddingStore(1, make_rule(Optimizer(name="adagrad", learning_rate=1.0)))
    slots = store.locate(keys(0, 1))
    start = store.read(slots).ravel()
    store.update(slots[:1], np.ones((1, 1), np.float32))
    store.update(slots, np.ones((2, 1), np.float32))
    moved = start - store.read(slots).ravel()
    assert moved == pytest.approx([1 + 1 / np.sqrt(2), 1.0], rel=1e-5)


def test_growth_keeps_weights_and_state() -> None:
    rule = make_rule(Optimizer(name="adagrad", learning_rate=1.0))
    store = EmbeddingStore(2, rule)
    old = store.locate(keys(5, 6))
    store.update(old, np.ones((2, 2), np.float32))
    values = store.read(old)
    store.fill(np.arange(100, 50_000, dtype=np.int64), chunk=999)
    np.testing.assert_array_equal(store.read(store.locate(keys(5, 6))), values)
    store.update(old, np.ones((2, 2), np.float32))
    assert (values - store.read(old)).ravel() == pytest.approx([1 / np.sqrt(2)] * 4, rel=1e-5)


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("family", ["dlrm", "xdeepfm"])
def test_bytes_grow_with_new_ids_as_the_memory_model_counts(name: str, family: str) -> None:
    job = small_job(optimizer=name, family=family)
    store = EmbeddingStore(job.model.row_widths[0], make_rule(job.model.optimizer))
    for rows in (10, 10, 700, 5000):
        store.fill(np.arange(rows, dtype=np.int64))
        assert store.rows == rows
        assert store.embedding_bytes == rows * row_bytes(job)[0]
        assert store.index_bytes == index_bytes(np.array(float(rows)))
