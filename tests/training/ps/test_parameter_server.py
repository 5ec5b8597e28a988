from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps import parameter_server, sync
from sizewright.training.ps.embedding import EmbeddingRows
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.parameter_server import ParameterServer, WorkerState
from sizewright.training.ps.routing import PARTITIONS, PARTS, partition_of
from sizewright.training.transport.exchange import AGAIN, DONE, LEAVE, STALE, WANT_DENSE, ExchangeRequest, Reply
from tests.helpers.training_parts import in_threads, make_ps, request

KEYS = st.lists(st.integers(0, 20), unique=True, max_size=8)
READER = 99
ALL = np.arange(PARTS)


def rows_of(ps: ParameterServer, keys: list[int]) -> Floats:
    return ps.exchange(WorkerState(READER), request(keys=keys, version=ps.version, flags=AGAIN)).rows[0]


def dense_of(ps: ParameterServer) -> list[float]:
    reply = ps.exchange(WorkerState(READER), request(version=ps.version, flags=AGAIN | WANT_DENSE))
    return [float(weight) for weight in reply.dense]


def minus(count: int) -> Floats:
    return np.full((count, 2), -1, np.float32)


class PendingExchange:
    """An exchange in a thread of its own, which may have to wait."""

    def __init__(self, ps: ParameterServer, client: WorkerState, asked: ExchangeRequest) -> None:
        self.outcome: list[Reply | Exception] = []
        self._ps, self._client, self._asked = ps, client, asked
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome.append(self._ps.exchange(self._client, self._asked))
        except ConnectionError as error:
            self.outcome.append(error)

    def waits(self) -> bool:
        """Once it has come to the lock."""
        self._thread.join(0.1)
        return self._thread.is_alive()

    def reply(self) -> Reply:
        self._thread.join(10)
        assert self.outcome, "the exchange hangs"
        assert isinstance(self.outcome[0], Reply), self.outcome[0]
        return self.outcome[0]


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(KEYS, st.booleans()), max_size=10))
def test_every_push_is_applied_exactly_once(steps: list[tuple[list[int], bool]]) -> None:
    """With SGD, rate 1 and gradient -1, a row has grown by the number of pushes that held it, however it was named."""
    ps, everything, client = make_ps(), list(range(21)), WorkerState(1)
    start, expected = rows_of(ps, everything), np.zeros(21)
    last: tuple[int | None, list[int]] = (None, [])
    for tag, (keys, named) in enumerate([*steps, ([], False)], start=1):
        pushed = request(
            keys=keys, tag=tag, push_tag=last[0], grads=minus(len(last[1])), push_keys=last[1] if named else ()
        )
        assert ps.exchange(client, pushed).state == DONE
        if last[0] is not None:
            expected[last[1]] += 1
        if named:
            client.slots_by_tag.pop(last[0] or 0, None)
        last = (tag, keys)
    np.testing.assert_allclose(rows_of(ps, everything) - start, np.stack([expected, expected], axis=1), atol=1e-5)
    assert client.slots_by_tag.keys() == {len(steps) + 1}  # only the last pull still waits for its push
    assert sum(group.samples.total for group in ps.applied_groups()) == len(steps)


def test_dense_weights_are_sent_on_request_and_move_by_their_gradient() -> None:
    ps, client = make_ps(dense=3), WorkerState(1)
    assert ps.exchange(client, request(keys=[1], tag=1)).dense.size == 0
    asked = request(push_tag=1, grads=np.zeros((1, 2)), dense=[1, 2, 3], flags=WANT_DENSE)
    moved = ps.exchange(client, asked).dense
    assert moved.tolist() == [-1, -2, -3]
    moved[:] = 50  # a copy: what a worker does with it is its own affair
    assert dense_of(ps) == [-1, -2, -3]


def test_look_ups_are_counted_by_partition_until_the_routing_changes() -> None:
    ps, client, keys = make_ps(), WorkerState(1), np.array([1, 2, 3, 2048])
    for tag in range(1, 25):
        ps.exchange(client, request(keys=keys.tolist(), tag=tag))
    np.testing.assert_array_equal(ps.partition_lookups(), 3 * np.bincount(partition_of(keys), minlength=PARTITIONS))
    ps.start_version(2)
    assert not ps.partition_lookups().any()


def test_server_counts_exchanges_pushes_and_lookups() -> None:
    ps, client = make_ps(), WorkerState(1)
    for tag, keys in enumerate(([1, 2, 3], [], [3, 4]), start=1):
        ps.exchange(client, request(keys=keys, tag=tag))
    ps.exchange(client, request(push_tag=3, grads=minus(2)))
    assert (ps.counters.exchanges, ps.counters.pushes, ps.counters.lookups) == (4, 1, 5)
    assert ps.counters.busy_s > 0
    assert ps.stores[0].rows == 4


def work(ps: ParameterServer, rounds: int, keys: list[list[int]], grads: Floats) -> None:
    """Each worker pulls its keys of each round and pushes its gradient for them, for the dense weights as well."""
    clients = [WorkerState(i) for i in range(len(grads))]

    def run(i: int) -> None:
        for tag in range(1, rounds + 1):
            ps.exchange(clients[i], request(keys=keys[i], tag=tag))
            mine = np.full((len(keys[i]), 2), grads[i], np.float32)
            ps.exchange(clients[i], request(push_tag=tag, grads=mine, dense=[grads[i]] * 4))

    for client in clients:
        ps.exchange(client, request())  # all are members before the first round
    in_threads(*(lambda i=i: run(i) for i in range(len(grads))))


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("staleness", [None, 0, 2])
def test_async_workers_lose_no_push(workers: int, staleness: int | None) -> None:
    ps, keys, rounds = make_ps(staleness=staleness), list(range(10)), 150
    start = rows_of(ps, keys)
    work(ps, rounds, [keys] * workers, np.full(workers, -1, np.float32))
    np.testing.assert_allclose(rows_of(ps, keys) - start, workers * rounds, rtol=1e-4)
    assert dense_of(ps) == pytest.approx([workers * rounds] * 4)


@pytest.mark.parametrize("workers", [2, 3])
def test_sync_round_applies_the_mean_once(workers: int) -> None:
    """A row in k of n workers' batches moves by the sum of their gradients over n, as one batch of all would do."""
    ps, rounds = make_ps(sync=True), 50
    start = rows_of(ps, [0, 1, 2])
    grads = -np.arange(1, workers + 1, dtype=np.float32)
    work(ps, rounds, [[0, 1]] + [[0]] * (workers - 2) + [[0, 2]], grads)
    shares = np.array([-grads.sum(), -grads[0], -grads[-1]]) / workers
    moved = rows_of(ps, [0, 1, 2]) - start
    np.testing.assert_allclose(moved, rounds * shares[:, None] * np.ones(2), rtol=1e-4)
    assert dense_of(ps) == pytest.approx([-rounds * grads.mean()] * 4, rel=1e-4)


def test_sync_adagrad_steps_once_with_the_mean() -> None:
    """The first step of Adagrad is the learning rate for any gradient; two steps would be longer."""
    ps = make_ps(name="adagrad", sync=True)
    start = rows_of(ps, [3])
    work(ps, 1, [[3], [3]], np.array([-1, -5], np.float32))
    np.testing.assert_allclose(rows_of(ps, [3]) - start, 1.0, rtol=1e-5)


def test_new_server_without_its_partitions_gives_no_snapshot() -> None:
    """Its incomplete rows would otherwise be restored as the trained model."""
    ps = make_ps(version=0)
    with pytest.raises(ConnectionError, match="has not begun"):
        ps.begin_snapshot(all_rows=True)
    ps.expect(1, {9}, slice(0, 4), ALL)
    ps.arrived(1, 9)
    assert ps.begin_snapshot(all_rows=True).applied


def test_waiting_for_others_does_not_count_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker waits for an hour by the server's clock, which stands still otherwise."""
    at = [0.0]
    for module in (parameter_server, sync):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: at[0], monotonic=time.monotonic))
    ps, clients = make_ps(sync=True), [WorkerState(1), WorkerState(2)]
    for client in clients:
        ps.exchange(client, request(keys=[1], tag=1))
    asked = request(push_tag=1, grads=minus(1))
    early = PendingExchange(ps, clients[0], asked)
    assert early.waits()
    at[0] = 3600.0
    ps.exchange(clients[1], asked)
    assert early.reply().state == DONE
    assert ps.counters.busy_s == 0.0


@pytest.mark.parametrize("how", ["forget", "last exchange"])
def test_round_does_not_wait_for_a_departed_worker(how: str) -> None:
    ps, clients = make_ps(sync=True), [WorkerState(1), WorkerState(2)]
    for client in clients:
        ps.exchange(client, request(keys=[1], tag=4))
    start = rows_of(ps, [1])
    early = PendingExchange(ps, clients[0], request(push_tag=4, grads=minus(1)))
    assert early.waits()
    if how == "forget":
        ps.forget(2)
    else:
        assert ps.exchange(clients[1], request(flags=LEAVE)).state == DONE
    assert early.reply().state == DONE
    np.testing.assert_allclose(rows_of(ps, [1]) - start, 1.0, rtol=1e-5)


def test_waiting_push_of_a_forgotten_worker_is_refused() -> None:
    ps, clients = make_ps(sync=True), [WorkerState(1), WorkerState(2)]
    for client in clients:
        ps.exchange(client, request(keys=[1], tag=1))
    before = rows_of(ps, [1])
    waiting = PendingExchange(ps, clients[0], request(push_tag=1, grads=minus(1), samples=(0, 4)))
    assert waiting.waits()
    (group,) = ps.forget(1)
    assert list(group.samples) == []
    waiting._thread.join(10)
    assert isinstance(waiting.outcome[0], ConnectionError)
    with pytest.raises(ConnectionError, match="was removed from the session"):
        ps.exchange(WorkerState(1), request(push_tag=2, push_keys=[1], grads=minus(1)))
    np.testing.assert_array_equal(rows_of(ps, [1]), before)


@pytest.mark.parametrize("sync", [False, True])
def test_repeated_push_is_applied_once(sync: bool) -> None:
    """Its reply was lost with the connection: the worker sends the same, with its keys, on another one."""
    ps, client = make_ps(sync=sync), WorkerState(1)
    before = ps.exchange(client, request(keys=[1], tag=1)).rows[0]
    asked = request(push_tag=1, grads=minus(1), dense=[1] * 4, keys=[1], tag=2)
    ps.exchange(client, asked)
    for flags in (0, AGAIN):
        again = asked._replace(push_keys=(np.array([1]),), flags=asked.flags | flags)
        reply = ps.exchange(WorkerState(1), again)
        np.testing.assert_allclose(reply.rows[0] - before, 1.0, rtol=1e-5)
    assert dense_of(ps) == [-1] * 4
    assert ps.counters.pushes == 1
    assert [list(group.samples) for group in ps.applied_groups()] == [[(asked.start, asked.end)]]


def test_rows_pulled_over_a_broken_connection_are_pushed_over_the_next() -> None:
    """A worker pulls a batch ahead: the push of one comes after the pull of the next."""
    ps = make_ps()
    before = rows_of(ps, [1, 2])
    ps.exchange(ps.worker_state(1), request(keys=[1], tag=1))
    ps.exchange(ps.worker_state(1), request(keys=[2], tag=2, push_tag=1, grads=minus(1)))
    ps.exchange(ps.worker_state(1), request(push_tag=2, grads=minus(1)))  # on another connection
    np.testing.assert_allclose(rows_of(ps, [1, 2]) - before, 1.0, rtol=1e-5)
    with pytest.raises(ConnectionError, match="does not know the pull"):
        ps.exchange(ps.worker_state(1), request(push_tag=3, grads=minus(1)))


def test_partly_applied_push_is_applied_to_the_remaining_parts() -> None:
    """The parts of another server came here by a move, before that one had taken the push."""
    ps = make_ps()
    keys = np.arange(20)
    at = partition_of(keys)
    missing = np.unique(at[::2])
    ps.exchange(
        WorkerState(1), request(push_tag=1, push_keys=keys.tolist(), grads=minus(20), dense=[1] * 4, samples=(0, 8))
    )
    before = rows_of(ps, keys.tolist())
    ps.applied.put(np.append(missing, PARTITIONS), SampleRanges())  # and the first block of the dense weights
    again = request(push_tag=1, push_keys=keys.tolist(), grads=minus(20), dense=[1] * 4, samples=(0, 8))
    ps.exchange(WorkerState(2), again)
    np.testing.assert_allclose((rows_of(ps, keys.tolist()) - before)[:, 0], np.isin(at, missing), atol=1e-5)
    assert [list(group.samples) for group in ps.applied_groups()] == [[(0, 8)]]
    assert ps.applied.repeated == 0


def test_partly_applied_samples_count_as_repeated() -> None:
    ps = make_ps()
    ps.exchange(WorkerState(1), request(push_tag=1, push_keys=[1], grads=minus(1), samples=(0, 8)))
    ps.exchange(WorkerState(1), request(push_tag=2, push_keys=[1], grads=minus(1), samples=(5, 13)))
    assert ps.applied.repeated == 3


def test_close_refuses_waiting_and_later_workers_and_keeps_the_rows() -> None:
    ps, clients = make_ps(sync=True), [WorkerState(1), WorkerState(2)]
    for client in clients:
        start = ps.exchange(client, request(keys=[1], tag=1)).rows[0]
    waiting = PendingExchange(ps, clients[0], request(push_tag=1, grads=minus(1)))
    ahead = PendingExchange(ps, clients[1], request(version=2))
    assert waiting.waits()
    assert ahead.waits()
    ps.close()
    for each in (waiting, ahead):
        each._thread.join(10)
        assert [type(result) for result in each.outcome] == [ConnectionError]
    with pytest.raises(ConnectionError):
        ps.exchange(WorkerState(3), request(keys=[2]))
    assert ps.stores[0].rows == 1
    np.testing.assert_array_equal(ps.stores[0].read(np.array([0])), start)


def test_request_of_an_old_routing_is_refused_and_of_a_new_one_waits() -> None:
    ps, client = make_ps(version=5), WorkerState(1)
    before = rows_of(ps, [1])
    asked = request(keys=[1], push_tag=3, push_keys=[1], grads=minus(1), dense=[1] * 4, version=4)
    assert ps.exchange(client, asked).state == STALE
    assert (ps.counters.exchanges, ps.counters.pushes, client.slots_by_tag) == (1, 0, {})
    ahead = PendingExchange(ps, client, asked._replace(version=6))
    assert ahead.waits()
    ps.start_version(6)
    assert ahead.reply().state == DONE
    np.testing.assert_allclose(rows_of(ps, [1]) - before, 1.0, rtol=1e-5)
    assert dense_of(ps) == [-1] * 4


def test_new_routing_starts_once_all_sources_are_done() -> None:
    ps, client = make_ps(dense=4), WorkerState(1)
    ps.exchange(client, request(keys=[1], tag=1))
    assert 1 in client.slots_by_tag
    ps.expect(2, {1, 7}, slice(1, 3), ALL)
    ps.freeze()
    ahead = PendingExchange(ps, client, request(keys=[1], tag=2, version=2, flags=WANT_DENSE))
    past = PendingExchange(ps, WorkerState(2), request(keys=[1]))
    ps.incoming(2).put_dense(1, np.array([[5.0], [6.0]], np.float32), np.empty((2, 0), np.float32))
    for version, source in ((2, 1), (1, 7), (3, 7), (2, 1)):
        ps.arrived(version, source)
    assert ahead.waits()
    assert past.waits()
    ps.arrived(2, 7)
    assert (ahead.reply().state, ahead.reply().dense.tolist()) == (DONE, [5, 6])
    assert past.reply().state == STALE
    assert ps.version == 2
    assert client.slots_by_tag.keys() == {2}  # pulls of the past are pushed with their keys


def test_round_interrupted_by_a_change_is_refused_completely() -> None:
    ps, clients = make_ps(sync=True), [WorkerState(1), WorkerState(2), WorkerState(3)]
    for client in clients:
        ps.exchange(client, request(keys=[1], tag=1))
    before = rows_of(ps, [1])
    early = [PendingExchange(ps, client, request(push_tag=1, grads=minus(1))) for client in clients[:2]]
    assert all(each.waits() for each in early)
    ps.freeze()
    assert [each.reply().state for each in early] == [STALE] * 2
    late = PendingExchange(ps, clients[2], request(push_tag=1, grads=minus(1)))
    assert late.waits()
    ps.start_version(2)
    assert late.reply().state == STALE
    np.testing.assert_array_equal(rows_of(ps, [1]), before)
    assert ps.counters.pushes == 0
    for client in clients:  # asked again, outside of rounds: together the mean
        again = request(push_tag=1, push_keys=[1], grads=minus(1), version=2, flags=AGAIN)
        assert ps.exchange(client, again).state == DONE
    np.testing.assert_allclose(rows_of(ps, [1]) - before, 1.0, rtol=1e-5)


def test_immediate_routing_change_refuses_an_open_round() -> None:
    """As when another server was replaced: the rest of the round comes with the new routing, and outside of it."""
    ps, clients = make_ps(sync=True), [WorkerState(1), WorkerState(2)]
    for client in clients:
        ps.exchange(client, request(keys=[1], tag=1))
    before = rows_of(ps, [1])
    early = PendingExchange(ps, clients[0], request(push_tag=1, grads=minus(1)))
    assert early.waits()
    ps.start_version(2)
    assert early.reply().state == STALE
    np.testing.assert_array_equal(rows_of(ps, [1]), before)


def test_push_waiting_during_a_routing_change_is_applied_once() -> None:
    ps, clients = make_ps(staleness=0), [WorkerState(1), WorkerState(2)]
    for client in clients:
        ps.exchange(client, request(keys=[1], tag=1))
    before = rows_of(ps, [1])
    asked = request(keys=[1], tag=2, push_tag=1, grads=minus(1))
    ahead = PendingExchange(ps, clients[0], asked)
    assert ahead.waits()
    ps.freeze()
    assert ahead.reply().state == STALE
    assert ahead.reply().rows == ()
    ps.start_version(2)
    ps.exchange(clients[0], asked._replace(version=2, flags=asked.flags | AGAIN, push_keys=(np.array([1]),)))
    np.testing.assert_allclose(rows_of(ps, [1]) - before, 1.0, rtol=1e-5)
    assert ps.counters.pushes == 1


def test_worker_joining_during_a_change_does_not_update_frozen_rows() -> None:
    """It waits for the open round to end; the change ends it, and then nothing may be applied any more."""
    ps, client = make_ps(sync=True), WorkerState(1)
    ps.exchange(client, request(keys=[1], tag=1))
    ps.exchange(WorkerState(3), request())
    before = rows_of(ps, [1])
    early = PendingExchange(ps, client, request(push_tag=1, grads=minus(1)))
    assert early.waits()
    newcomer = PendingExchange(ps, WorkerState(2), request(push_tag=9, push_keys=[1], grads=minus(1)))
    assert newcomer.waits()
    ps.freeze()
    assert early.reply().state == STALE
    for worker in (1, 3):
        ps.forget(worker)  # so that a push of the newcomer would be a round of its own
    assert newcomer.waits()
    np.testing.assert_array_equal(ps.stores[0].read(np.array([0])), before)
    ps.start_version(2)
    assert newcomer.reply().state == STALE
    np.testing.assert_array_equal(rows_of(ps, [1]), before)


def test_first_pull_does_not_wait_for_an_open_round_but_first_push_does() -> None:
    """The round may need a push that a worker sends again only once another server has the newcomer's."""
    ps, clients = make_ps(sync=True), [WorkerState(1), WorkerState(3)]
    for client in clients:
        ps.exchange(client, request(keys=[1], tag=1))
    early = PendingExchange(ps, clients[0], request(push_tag=1, grads=minus(1)))
    assert early.waits()
    newcomer = WorkerState(2)
    assert ps.exchange(newcomer, request(keys=[1], tag=1)).state == DONE
    pushing = PendingExchange(ps, newcomer, request(push_tag=1, grads=minus(1)))
    assert pushing.waits()
    ps.exchange(clients[1], request(push_tag=1, grads=minus(1)))
    assert early.reply().state == DONE
    assert pushing.waits()  # for the others, in a round of all three
    assert ps.sync.members == {1, 2, 3}
    ps.close()


def test_worker_forgotten_while_joining_is_not_a_member() -> None:
    """Else all later rounds would wait for it for ever."""
    ps, clients = make_ps(sync=True), [WorkerState(1), WorkerState(3)]
    for client in clients:
        ps.exchange(client, request(keys=[1], tag=1))
    early = PendingExchange(ps, clients[0], request(push_tag=1, grads=minus(1)))
    assert early.waits()
    newcomer = PendingExchange(ps, WorkerState(2), request(push_tag=9, push_keys=[1], grads=minus(1)))
    assert newcomer.waits()
    ps.forget(2)
    assert ps.exchange(clients[1], request(push_tag=1, grads=minus(1))).state == DONE
    assert early.reply().state == DONE
    newcomer._thread.join(10)
    assert isinstance(newcomer.outcome[0], ConnectionError)
    assert ps.sync.members == {1, 3}


def test_rollback_restores_dense_weights_and_applied_samples() -> None:
    ps, client = make_ps(dense=4), WorkerState(1)
    ps.exchange(client, request(keys=[1], tag=1))
    ps.exchange(client, request(push_tag=1, grads=minus(1), dense=[1] * 4, samples=(0, 1)))
    ps.expect(2, {7}, slice(0, 2), np.arange(100))
    ps.incoming(2).put_dense(0, np.full((2, 1), 9, np.float32), np.empty((2, 0), np.float32))
    ps.arrived(2, 7)
    assert dense_of(ps) == [9, 9]
    ps.exchange(client, request(keys=[1], tag=2, version=2))
    ps.exchange(client, request(push_tag=2, grads=minus(1), version=2, samples=(1, 2)))
    ps.roll_back(3)
    assert (ps.version, dense_of(ps)) == (3, [-1] * 4)
    applied = {tuple(group.parts[[0, -1]]): list(group.samples) for group in ps.applied_groups()}
    assert applied == {(0, 99): [(1, 2)], (100, PARTS - 1): [(0, 1)]}  # nobody said that the first had been applied
    ps.roll_back(4)
    assert len(ps.applied_groups()) == 2


def test_late_rows_of_a_cancelled_change_are_ignored() -> None:
    """They were on their way when their server died; meanwhile the row is trained here."""
    ps = make_ps()
    rows = EmbeddingRows(np.array([1]), np.full((1, 2), 9, np.float32), np.empty((1, 0), np.float32))
    with pytest.raises(ConnectionError, match="cancelled"):
        ps.incoming(2).insert(rows)
    ps.expect(2, {1, 7}, slice(0, 4), ALL)
    ps.incoming(2).insert(rows)
    assert rows_of(ps, [1]).tolist() == [[9, 9]]
    ps.roll_back(3)
    ps.expect(4, {1, 7}, slice(0, 4), ALL)
    for late in (2, 3):
        with pytest.raises(ConnectionError, match="cancelled"):
            ps.incoming(late).insert(rows)


@pytest.mark.parametrize("started", [False, True])
def test_cancelled_change_restores_the_previous_state(started: bool) -> None:
    ps = make_ps(dense=np.array([1, 2, 3, 4], np.float32))
    ps.expect(2, {1, 7}, slice(1, 2), ALL)
    ps.incoming(2).put_dense(1, np.zeros((1, 1), np.float32), np.empty((1, 0), np.float32))
    if started:
        ps.freeze()
    ps.roll_back(3)
    assert dense_of(ps) == [1, 2, 3, 4]
    with pytest.raises(ConnectionError):  # what comes late belongs to nothing
        ps.incoming(2).put_dense(1, np.zeros((1, 1), np.float32), np.empty((1, 0), np.float32))
    for source in (1, 7):
        ps.arrived(2, source)
    assert ps.version == 3


def test_new_server_is_not_rolled_back_before_its_start() -> None:
    """Its dense weights are those that it was given, whatever becomes of a later change."""
    ps = make_ps(dense=4, version=0)
    ps.expect(1, {0}, slice(2, 5), ALL)
    ps.incoming(1).put_dense(2, np.array([[1], [2], [3]], np.float32), np.empty((3, 0), np.float32))
    ps.arrived(1, 0)
    ps.roll_back(2)
    assert dense_of(ps) == [1, 2, 3]
