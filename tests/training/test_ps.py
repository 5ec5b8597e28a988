from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from training_parts import NO_FLOATS, make_ps, pull, push

from sizewright.training.hash_index import Slots
from sizewright.training.optimizers import Floats
from sizewright.training.ps import ParameterServer
from sizewright.training.wire import Reply, Request

KEYS = st.lists(st.integers(0, 20), unique=True, max_size=8)


def rows_of(ps: ParameterServer, keys: list[int]) -> Floats:
    return ps.exchange(pull(keys), {}).rows


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(KEYS, max_size=10))
def test_every_push_is_applied_exactly_once(steps: list[list[int]]) -> None:
    """With SGD, rate 1 and gradient -1, a row has grown by the number of pushes that held it."""
    ps, everything = make_ps(), list(range(21))
    start, places = rows_of(ps, everything), dict[int, Slots]()
    expected = np.zeros(21)
    last: tuple[int, int] = (0, 0)
    for tag, keys in enumerate([*steps, []], start=1):
        grads = np.full((last[1], 2), -1, np.float32)
        ps.exchange(Request(last[0], grads, NO_FLOATS, tag, np.array(keys, np.int64), False), places)
        expected[keys] += 1
        last = (tag, len(keys))
    grown = rows_of(ps, everything) - start
    np.testing.assert_allclose(grown, np.stack([expected, expected], axis=1), atol=1e-5)
    assert len(places) == 1  # only the last pull still waits for its push


def test_the_same_push_again_or_an_unknown_one_does_nothing() -> None:
    ps, places = make_ps(), dict[int, Slots]()
    start = ps.exchange(pull([4, 5], tag=7), places).rows
    for tag in (7, 7, 99):
        ps.exchange(push(tag, -np.ones((2, 2))), places)
    np.testing.assert_allclose(rows_of(ps, [4, 5]), start + 1, atol=1e-6)


def test_dense_weights_come_when_wanted_and_move_by_their_gradient() -> None:
    ps, places = make_ps(dense=3), dict[int, Slots]()
    reply = ps.exchange(pull([1], tag=1), places)
    assert reply.dense.size == 0
    moved = ps.exchange(push(1, np.zeros((1, 2)), np.array([1, 2, 3], np.float32)), places).dense
    assert moved.tolist() == [-1, -2, -3]
    moved[:] = 50  # a copy: what a worker does with it is its own affair
    assert ps.exchange(pull([1], want_dense=True), places).dense.tolist() == [-1, -2, -3]


def test_it_counts_exchanges_and_looked_up_rows() -> None:
    ps, places = make_ps(), dict[int, Slots]()
    for tag, keys in enumerate(([1, 2, 3], [], [3, 4]), start=1):
        ps.exchange(pull(keys, tag), places)
    assert (ps.counters.exchanges, ps.counters.lookups) == (3, 5)
    assert ps.counters.busy_s > 0
    assert ps.store.rows == 4


def in_threads(ps: ParameterServer, rounds: list[list[list[int]]], grads: Floats) -> None:
    """Each worker pulls its keys of each round and pushes its gradient for them, for its dense weights as well."""
    faults: list[BaseException] = []

    def run(worker: int) -> None:
        places: dict[int, Slots] = {}
        try:
            for tag, keys in enumerate(rounds, start=1):
                mine = keys[worker]
                ps.exchange(pull(mine, tag), places)
                width = np.full((len(mine), 2), grads[worker], np.float32)
                ps.exchange(push(tag, width, np.full(4, grads[worker], np.float32)), places)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(grads))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a worker hangs"
    assert not faults


@pytest.mark.parametrize("workers", [2, 3])
def test_async_workers_lose_no_push(workers: int) -> None:
    ps, keys, rounds = make_ps(), list(range(10)), 200
    start = rows_of(ps, keys)
    in_threads(ps, [[keys] * workers] * rounds, np.full(workers, -1, np.float32))
    np.testing.assert_allclose(rows_of(ps, keys) - start, workers * rounds, rtol=1e-4)
    assert ps.exchange(pull([], want_dense=True), {}).dense == pytest.approx([workers * rounds] * 4)


@pytest.mark.parametrize("workers", [2, 3])
def test_sync_workers_apply_their_mean_once_a_round(workers: int) -> None:
    """A row in k of n workers' batches moves by the sum of their gradients over n, as one batch of all would do."""
    ps, rounds = make_ps(sync=workers), 50
    start = rows_of(ps, [0, 1, 2])
    grads = -np.arange(1, workers + 1, dtype=np.float32)
    keys = [[0, 1]] + [[0]] * (workers - 2) + [[0, 2]]
    in_threads(ps, [keys] * rounds, grads)
    shares = np.array([-grads.sum(), -grads[0], -grads[-1]]) / workers
    moved = rows_of(ps, [0, 1, 2]) - start
    np.testing.assert_allclose(moved, rounds * shares[:, None] * np.ones(2), rtol=1e-4)
    dense = ps.exchange(pull([], want_dense=True), {}).dense
    assert dense == pytest.approx([-rounds * grads.mean()] * 4, rel=1e-4)


def test_sync_adagrad_sees_the_mean_once_not_each_gradient() -> None:
    """Adagrad's first step is the rate whatever the gradient; two steps would be longer."""
    ps = make_ps(name="adagrad", sync=2)
    start = rows_of(ps, [3])
    in_threads(ps, [[[3], [3]]], np.array([-1, -5], np.float32))
    np.testing.assert_allclose(rows_of(ps, [3]) - start, 1.0, rtol=1e-5)


def test_waiting_for_the_others_is_not_busy() -> None:
    """One worker waits for long; the server's busy seconds stay far below that."""
    ps, places = make_ps(sync=2), [dict[int, Slots](), dict[int, Slots]()]
    for mine in places:
        ps.exchange(pull([1]), mine)
    early = threading.Thread(target=ps.exchange, args=(push(1, np.ones((1, 2)), np.ones(4, np.float32)), places[0]))
    early.start()
    time.sleep(1.0)
    assert early.is_alive()
    ps.exchange(push(1, np.ones((1, 2)), np.ones(4, np.float32)), places[1])
    early.join(10)
    assert not early.is_alive()
    assert ps.counters.exchanges == 4
    assert 0 < ps.counters.busy_s < 0.5


def test_closing_turns_waiting_and_later_workers_away_and_leaves_the_rows() -> None:
    ps, places = make_ps(sync=2), dict[int, Slots]()
    start = ps.exchange(pull([1]), places).rows
    outcome: list[Reply | Exception] = []

    def wait() -> None:
        try:
            outcome.append(ps.exchange(push(1, np.ones((1, 2))), places))
        except ConnectionError as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not ps._round_pushes:
        time.sleep(0.01)
    ps.close()
    waiting.join(10)
    assert [type(result) for result in outcome] == [ConnectionError]
    with pytest.raises(ConnectionError):
        ps.exchange(pull([2]), {})
    assert ps.store.rows == 1
    np.testing.assert_array_equal(ps.store.read(np.array([0])), start)
