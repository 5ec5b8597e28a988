from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.training.ps.sync import AsyncUpdates, PendingPush, RowPush, SyncRounds, UpdateSync, mean_push

WORKERS = st.integers(0, 4)


def push_of(value: float, slots: tuple[int, ...] = (0,)) -> PendingPush:
    rows = np.full((len(slots), 1), value, np.float32)
    return PendingPush([RowPush(np.array(slots, np.int64), rows)], np.array([value], np.float32))


class Table:
    """An UpdateSync whose calls run in separate threads, with the applied pushes and the results of calls."""

    def __init__(self, make: Callable[[threading.Condition], UpdateSync]) -> None:
        self.lock = threading.Lock()
        self.pacing = make(threading.Condition(self.lock))
        self.applied: list[float] = []
        self.results: dict[threading.Thread, object] = {}

    def call(self, function: Callable[[], object]) -> threading.Thread:
        """Start the call in a thread and return once it has ended or waits."""
        started = threading.Event()

        def run() -> None:
            with self.lock:
                started.set()
                try:
                    self.results[threading.current_thread()] = function()
                except ConnectionError as error:
                    self.results[threading.current_thread()] = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert started.wait(10)
        with self.lock:
            return thread

    def do(self, function: Callable[[], object]) -> None:
        """Run a call that must not wait."""
        self.ended(self.call(function))

    def push(self, worker: int, value: float = 1.0, tag: int = 1) -> threading.Thread:
        return self.call(lambda: self.pacing.push(worker, tag, push_of(value), self._apply))

    def join(self, worker: int) -> threading.Thread:
        return self.call(lambda: (self.pacing.join(worker), self.pacing.await_membership(worker)))

    def ended(self, thread: threading.Thread) -> object:
        thread.join(10)
        assert not thread.is_alive(), "the call waits although it must not"
        return self.results[thread]

    def waits(self, thread: threading.Thread) -> bool:
        with self.lock:
            return thread not in self.results

    def close(self, *threads: threading.Thread) -> None:
        """Whoever waits is woken with ConnectionError."""
        waiting = [thread for thread in threads if self.waits(thread)]
        self.do(self.pacing.close)
        assert all(isinstance(self.ended(thread), ConnectionError) for thread in waiting)

    def _apply(self, pushes: Sequence[PendingPush]) -> None:
        self.applied.append(float(mean_push(pushes).dense_grads[0]))


ACTIONS = st.lists(st.tuples(st.sampled_from(["push"] * 6 + ["join", "drop", "break"]), WORKERS), max_size=30)


@settings(max_examples=60, deadline=None)
@given(actions=ACTIONS)
def test_round_applies_the_mean_of_one_push_per_member(actions: list[tuple[str, int]]) -> None:
    """Each push is in one round, or its worker gets an error, while workers join, leave and die and rounds break off.

    Each push has a different value. A worker that joins during a round waits for the next one.
    """
    table, members, expected = Table(SyncRounds), {0, 1}, list[float]()
    pushes: dict[int, tuple[float, threading.Thread]] = {}
    joining: dict[int, threading.Thread] = {}
    everything: list[threading.Thread] = []
    fresh, number = 100, 0
    for worker in members:
        table.do(lambda worker=worker: table.pacing.join(worker))

    def end_round(complete: bool) -> None:
        if complete:
            expected.append(float(np.float32(sum(value for value, _ in pushes.values()) / len(pushes))))
        for _, thread in pushes.values():
            assert table.ended(thread) is complete
        pushes.clear()
        for worker, thread in joining.items():
            table.ended(thread)
            members.add(worker)
        joining.clear()

    for action, about in actions:
        ready = sorted(members - pushes.keys())
        if action == "push" and ready:
            number += 1
            worker = ready[about % len(ready)]
            pushes[worker] = (number, table.push(worker, number))
            everything.append(pushes[worker][1])
        elif action == "join" and len(members) + len(joining) < 5:
            fresh += 1
            joining[fresh] = table.join(fresh)
            everything.append(joining[fresh])
        elif action == "drop" and members:
            worker = sorted(members)[about % len(members)]
            table.do(lambda worker=worker: table.pacing.drop(worker))
            members.discard(worker)
            if worker in pushes:  # it has died, so nobody reads the result
                everything.remove(pushes.pop(worker)[1])
        elif action == "break":
            table.do(table.pacing.break_off)
            end_round(complete=False)
        if pushes and members <= pushes.keys():
            end_round(complete=True)
        if not pushes:
            end_round(complete=False)  # none is open: those that join are let in
        assert all(table.waits(thread) for _, thread in pushes.values())
        assert all(table.waits(thread) for thread in joining.values())
    assert table.applied == pytest.approx(expected)
    table.close(*everything)


@settings(max_examples=60, deadline=None)
@given(
    staleness=st.integers(0, 3),
    actions=st.lists(st.tuples(st.sampled_from(["push"] * 8 + ["elsewhere", "join", "drop"]), WORKERS), max_size=40),
)
def test_no_worker_exceeds_the_staleness_bound(staleness: int, actions: list[tuple[str, int]]) -> None:
    """A push goes on when its worker is within the bound of the slowest, and waits just as long.

    `elsewhere` is a push that another server took after a change of the routing: it counts here as well, with the next.
    """
    table = Table(lambda changed: AsyncUpdates(changed, staleness))
    steps: dict[int, int] = {}  # steps of members, on one scale
    tags: dict[int, int] = {}
    first: dict[int, int] = {}
    waiting: dict[int, threading.Thread] = {}
    pushed, fresh = 0, 100

    def join(worker: int) -> None:
        table.do(lambda: table.pacing.join(worker))
        steps[worker], tags[worker] = min(steps.values(), default=0), 0

    for worker in (0, 1, 2):
        join(worker)
    for action, about in actions:
        ready = sorted(steps.keys() - waiting.keys())
        if not ready:
            break
        worker = ready[about % len(ready)]
        if action == "elsewhere" and worker in first:
            tags[worker] += 1
        elif action == "push":
            tags[worker] += 1
            first.setdefault(worker, steps[worker] + 1 - tags[worker])
            steps[worker] = first[worker] + tags[worker]
            waiting[worker] = table.push(worker, tag=tags[worker])
            pushed += 1
        elif action == "join":
            fresh += 1
            join(fresh)
        elif action == "drop" and len(steps) > 1:
            table.do(lambda worker=worker: table.pacing.drop(worker))
            del steps[worker]
        slowest = min(steps.values())
        for each in [each for each in waiting if steps[each] - slowest <= staleness]:
            assert table.ended(waiting.pop(each)) is True
        assert all(table.waits(thread) for thread in waiting.values())
    assert len(table.applied) == pushed  # nobody waits before it is applied
    table.close(*waiting.values())


@pytest.mark.parametrize("staleness", [0, 2])
def test_change_releases_waiting_workers(staleness: int) -> None:
    """Its reply may be what the others wait for at another server."""
    table = Table(lambda changed: AsyncUpdates(changed, staleness))
    for worker in (1, 2):
        table.do(lambda worker=worker: table.pacing.join(worker))
    for tag in range(1, staleness + 1):
        assert table.ended(table.push(1, tag=tag)) is True
    ahead = table.push(1, tag=staleness + 1)
    assert table.waits(ahead)
    table.do(table.pacing.break_off)
    assert table.ended(ahead) is True
    for tag in range(staleness + 2, 2 * staleness + 2):  # counted anew
        assert table.ended(table.push(1, tag=tag)) is True
    again = table.push(1, tag=2 * staleness + 2)
    assert table.waits(again)  # the bound holds on
    assert table.ended(table.push(2, tag=1)) is True
    assert table.ended(again) is True


def test_servers_that_began_at_different_changes_do_not_make_workers_wait_crosswise() -> None:
    old, new = (Table(lambda changed: AsyncUpdates(changed, 0)) for _ in range(2))
    for worker in (1, 2):
        old.do(lambda worker=worker: old.pacing.join(worker))
    ahead = old.push(1, tag=1)
    assert old.waits(ahead)
    old.do(old.pacing.break_off)  # the new server comes with this change
    assert old.ended(ahead) is True
    for worker in (1, 2):
        new.do(lambda worker=worker: new.pacing.join(worker))
    waiting = [server.push(1, tag=2) for server in (old, new)]
    for server, thread in zip((old, new), waiting, strict=True):
        assert server.waits(thread)
        assert server.ended(server.push(2, tag=1)) is True
        assert server.ended(thread) is True


def test_no_worker_waits_without_a_bound() -> None:
    table = Table(AsyncUpdates)
    for worker in (1, 2):
        table.do(lambda worker=worker: table.pacing.join(worker))
    for tag in range(50):
        assert table.ended(table.push(1, tag=tag)) is True
    assert len(table.applied) == 50
    assert table.pacing.waited_s == 0


def test_push_refused_elsewhere_counts_as_a_share_without_waiting() -> None:
    for make, share in ((SyncRounds, 1 / 3), (AsyncUpdates, 1.0)):
        table = Table(make)
        for worker in (1, 2, 3):
            table.do(lambda worker=worker, table=table: table.pacing.join(worker))
        table.do(lambda table=table: table.pacing.push_outside_round(push_of(6.0), table._apply))
        assert table.applied == pytest.approx([6.0 * share])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 9), unique=True, max_size=6), st.sampled_from([0, 3])), min_size=1, max_size=4
    )
)
def test_mean_counts_untouched_rows_as_zero(shapes: list[tuple[list[int], int]]) -> None:
    rng = np.random.default_rng(0)
    pushes = [
        PendingPush(
            [RowPush(np.array(slots, np.int64), rng.random((len(slots), width), np.float32)) for width in (2, 5)],
            rng.random(dense, np.float32),
        )
        for slots, dense in shapes
    ]
    rows, dense = [np.zeros((10, 2)), np.zeros((10, 5))], np.zeros(3)
    for push in pushes:
        for total, row_push in zip(rows, push.rows, strict=True):
            total[row_push.slots] += row_push.grads
        dense[: push.dense_grads.size] += push.dense_grads
    mean = mean_push(pushes)
    for total, row_push in zip(rows, mean.rows, strict=True):
        assert sorted(row_push.slots.tolist()) == sorted({slot for slots, _ in shapes for slot in slots})
        np.testing.assert_allclose(row_push.grads, total[row_push.slots] / len(pushes), rtol=1e-5)
    np.testing.assert_allclose(mean.dense_grads, (dense / len(pushes))[: mean.dense_grads.size], rtol=1e-5)
    assert mean.dense_grads.size == max(size for _, size in shapes)
