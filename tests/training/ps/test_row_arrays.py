from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.spec import Optimizer
from sizewright.training.ps.embedding import EmbeddingStore
from sizewright.training.ps.optimizers import RULES, make_rule
from sizewright.training.ps.row_arrays import DeviceRows, HostRows

NAMES = sorted(RULES)
WIDTH = 5


def check(name: str, seed: int, device: str) -> None:
    """Both see the same updates, puts and a growth; weights and state must agree throughout."""
    rng, rule = np.random.default_rng(seed), make_rule(Optimizer(name=name, learning_rate=0.05))
    both = HostRows(WIDTH, rule, 8), DeviceRows(WIDTH, rule, 8, device)
    everything = np.arange(8)
    weights = rng.standard_normal((8, WIDTH)).astype(np.float32)
    state = rng.random((8, rule.state_width(WIDTH)), dtype=np.float32)
    for rows in both:
        rows.put(everything, weights, state)
        rows.grow(20)
    for _ in range(6):
        slots = rng.permutation(20)[: rng.integers(0, 20)].astype(np.int64)
        grads = rng.standard_normal((len(slots), WIDTH)).astype(np.float32)
        for rows in both:
            rows.update(slots, grads)
        np.testing.assert_allclose(both[1].read(slots), both[0].read(slots), rtol=1e-5, atol=1e-6)
    everything = np.arange(20)
    for theirs, ours in zip(both[1].take(everything), both[0].take(everything), strict=True):
        assert theirs.dtype == np.float32
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)
    assert both[0].capacity == both[1].capacity == 20
    assert both[0].device_bytes == 0
    assert both[1].device_bytes == 20 * 4 * (WIDTH + rule.state_width(WIDTH))


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 10**6))
def test_device_rows_update_like_host_rows(name: str, seed: int) -> None:
    check(name, seed, "cpu")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this host has no GPU")
def test_gpu_rows_update_like_host_rows(name: str) -> None:
    for seed in range(3):
        check(name, seed, "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this host has no GPU")
def test_gpu_store_equals_host_store() -> None:
    rule = make_rule(Optimizer(name="adam", learning_rate=0.1))
    stores = [EmbeddingStore(4, rule, device=device) for device in ("cpu", "cuda")]
    for store in stores:
        slots = store.locate(np.arange(3000, dtype=np.int64))
        store.update(slots[::2], np.ones((1500, 4), np.float32))
    host, device = (store.take(np.arange(3000), 0) for store in stores)
    for mine, theirs in zip(host, device, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-6)
    assert stores[1].device_bytes > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [HostRows, lambda *about: DeviceRows(*about, "cpu")])
def test_read_returns_a_copy(name: str, make: type[HostRows]) -> None:
    rows, slots = make(WIDTH, make_rule(Optimizer(name=name)), 4), np.array([2, 0])
    rows.read(slots)[:] = 7
    for array in rows.take(slots):
        array[:] = 7
    assert not rows.read(slots).any()
    assert not rows.take(slots)[1].any()
