from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps import migration as moving
from sizewright.training.ps.embedding import MOVE, EmbeddingRows, Mask
from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.migration import Migration, MigrationStats, copy_snapshot, copy_unread
from sizewright.training.ps.optimizers import RULES, Floats
from sizewright.training.ps.parameter_server import ParameterServer
from sizewright.training.ps.routing import ALL_PARTS, Owners, Routing, Server
from sizewright.training.transport.exchange import LEAVE, WANT_DENSE
from sizewright.training.transport.links import TcpTransport
from sizewright.training.transport.listeners import PsServer
from sizewright.training.transport.peers import Peer
from sizewright.training.worker.ps_client import DensePush, OutgoingPush, PsClient, Pull
from tests.helpers.training_parts import TOKEN, in_threads, make_ps, servers_for

ROWS, DENSE, STEPS = 3000, 40, 120
WORKERS = {1, 2}


class ServerPool:
    """Real servers behind TCP, rows and dense weights zero at first, whose partitions move."""

    def __init__(self, servers: int, **about: object) -> None:
        self._about = {"width": 1, "init_scale": 0.0, "total": DENSE} | about
        self.running: dict[int, PsServer] = {}
        self.routers: list[PsClient] = []
        started = tuple(self.start(1) for _ in range(servers))
        self.routing = Routing.even(started, DENSE)
        for server, part in zip(started, self.routing.slices(), strict=True):
            ps = self.ps(server)
            ps.dense = ps.dense.like(part.start, part.stop)
            ps.applied = ps.applied.keep(self.routing.parts_of(server.id))
            ps.join(WORKERS)

    def start(self, version: int = 0) -> Server:
        number = len(self.running) + 1
        self.running[number] = PsServer(make_ps(dense=0, version=version, **self._about), TOKEN)  # type: ignore[arg-type]
        return servers_for([self.running[number]], number)[0]

    def ps(self, server: Server | int) -> ParameterServer:
        return self.running[server if isinstance(server, int) else server.id]._ps

    def move(
        self, servers: Sequence[Server], *, undone: bool = False, owners: Owners | None = None
    ) -> list[MigrationStats]:
        """As a session moves; `undone` calls it off once some have sent everything."""
        target = self.routing.with_servers(tuple(servers))
        target = target if owners is None else target._replace(owners=owners)
        new = {server.id for server in servers} - {server.id for server in self.routing.servers}
        self._announce(target)
        sources = {server.id for server in self.routing.servers}
        for server in servers:
            self.ps(server).join(WORKERS)
            self.ps(server).expect(target.version, sources, target.dense_of(server.id), target.parts_of(server.id))
        peers = {i: {s.id: Peer(s.address, TOKEN, i, target.version) for s in servers if s.id != i} for i in sources}
        migrations = [Migration(self.ps(i), i, target, peers[i]) for i in sources]
        in_threads(*(migration.copy for migration in migrations))
        in_threads(*(migration.finish for migration in (migrations[:1] if undone else migrations)))
        if undone:
            for i in new:
                self.running[i].close()
            self.routing = self.routing._replace(version=target.version + 1)
            for i in sources:
                self.ps(i).roll_back(self.routing.version)
                Migration(self.ps(i), i, self.routing, {}).remove_moved_rows()
            self._announce(self.routing)
        else:
            self.routing = target
            for i in sources:
                self.ps(i).drop_previous()
            in_threads(*(migration.remove_moved_rows for migration in migrations))
        for peer in (peer for connections in peers.values() for peer in connections.values()):
            peer.close()
        return [migration.stats for migration in migrations]

    def rows(self) -> tuple[Floats, Floats]:
        """Weights and state of the rows by key; none may be held twice."""
        taken = []
        for server in self.routing.servers:
            store = self.ps(server).stores[0]
            taken.append(store.rows_at(store.slots(0, store.top)[0]))
        keys = np.concatenate([rows.keys for rows in taken])
        assert len(np.unique(keys)) == len(keys)
        order = np.argsort(keys)
        return np.concatenate([r.weights for r in taken])[order], np.concatenate([r.state for r in taken])[order]

    def dense(self) -> tuple[Floats, Floats]:
        parts = [self.ps(server).dense.part(0, DENSE) for server in self.routing.servers]
        return np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])

    def router(self, worker: int) -> PsClient:
        self.routers.append(PsClient(TcpTransport(TOKEN), worker, self.routing, [1], patience_s=30))
        return self.routers[-1]

    def close(self) -> None:
        for each in (*self.routers, *self.running.values()):
            each.close()

    def _announce(self, routing: Routing) -> None:
        for router in self.routers:
            router.announce(routing)


class Pushing:
    """A worker that pushes gradients of -1 for random rows and all dense weights, and counts them.

    Its last pushes are empty: two workers may end some rounds apart, and the mean of a round should be of both.
    """

    def __init__(self, pool: ServerPool, number: int) -> None:
        self.counts = np.zeros(ROWS)
        self.steps = 0
        self._number = number
        self._router, self._rng = pool.router(number), np.random.default_rng(number)

    def run(self) -> None:
        before: OutgoingPush | None = None
        last = STEPS + 10
        for tag in range(1, last + 1):
            keys = self._rng.integers(0, ROWS, 0 if tag > STEPS else 400)
            lookup, version = self._router.routing.lookup(keys), self._router.routing.version
            dense = DensePush()
            if before and len(before.row_grads[0]):
                dense = DensePush(np.full(DENSE, -1, np.float32), np.array([(before.start, before.end)]))
            self._router.send(before, Pull(tag, [lookup]), dense, WANT_DENSE | (LEAVE if tag == last else 0))
            self._router.receive(self._router.empty_rows([lookup]), np.empty(DENSE, np.float32))
            self.counts[lookup.keys] += 1
            at = self._number * 1_000_000 + tag
            grads = np.full((len(lookup.keys), 1), -1, np.float32)
            before = OutgoingPush(tag, version, [lookup], [grads], at, at + 1)
            self.steps = tag
            time.sleep(0.003)  # so that it goes on during all moves


@pytest.fixture
def fleets() -> Iterator[list[ServerPool]]:
    pools: list[ServerPool] = []
    yield pools
    for pool in pools:
        pool.close()


@pytest.mark.parametrize("about", [{}, {"sync": True}, {"staleness": 1}], ids=["async", "sync", "bounded"])
def test_migration_neither_loses_nor_repeats_a_push(fleets: list[ServerPool], about: dict[str, object]) -> None:
    """1 → 2 servers, one replaced, all rows exchanged, a move called off, 2 → 1, all while two workers push.

    With SGD, rate 1 and gradient -1, each row ends at the number of pushes that held it; in synchronous rounds at half,
    being the mean of two workers. (Of those no move is called off: a worker that had turned to the new servers counts
    as a member of the old ones again only with its next push, and so the mean of one round may be of one.)
    """
    pool = ServerPool(1, **about)
    fleets.append(pool)
    workers = [Pushing(pool, number) for number in sorted(WORKERS)]
    versions: list[int] = []

    def until(step: int) -> None:
        while min(worker.steps for worker in workers) < step:
            threading.Event().wait(0.002)

    def moves() -> None:
        for number, change in enumerate(["add", "replace", "exchange", "undone", "remove", "replace"], start=1):
            until(number * STEPS // 8)
            servers = pool.routing.servers
            if change == "add":
                pool.move([*servers, pool.start()])
            elif change == "replace":
                pool.move([pool.start(), *servers[1:]])
            elif change == "exchange":
                pool.move(servers, owners=1 - pool.routing.owners)
            elif change == "remove":
                pool.move(servers[1:])
            elif "sync" not in about:
                pool.move([servers[0], pool.start(), pool.start()], undone=True)
            versions.append(min(worker.steps for worker in workers))

    in_threads(moves, *(worker.run for worker in workers))
    assert versions[-1] < STEPS, "training was over before the last move"
    share = 0.5 if "sync" in about else 1.0
    everything = sum(worker.counts for worker in workers) * share
    assert (everything > 0).all()
    np.testing.assert_array_equal(pool.rows()[0][:, 0], everything)
    np.testing.assert_array_equal(pool.dense()[0][:, 0], 2 * STEPS * share)
    assert pool.routing.version == (6 if "sync" in about else 8)
    assert all(server.fault is None for server in pool.running.values())


@pytest.mark.parametrize("name", sorted(RULES))
def test_weights_and_optimizer_state_move_unchanged(fleets: list[ServerPool], name: str) -> None:
    pool = ServerPool(2, name=name, rate=0.1, width=3, init_scale=1.0)
    fleets.append(pool)
    rng = np.random.default_rng(0)
    for server in pool.routing.servers:
        ps = pool.ps(server)
        mine = np.arange(ROWS)
        mine = pool.routing.lookup(mine).keys
        counts = np.cumsum([0, *pool.routing.lookup(np.arange(ROWS)).counts])
        at = pool.routing.position(server.id)
        slots = ps.stores[0].locate(mine[counts[at] : counts[at + 1]])
        for _ in range(3):
            ps.stores[0].update(slots, rng.standard_normal((len(slots), 3)).astype(np.float32))
            ps.dense.update(rng.standard_normal(ps.dense.end - ps.dense.start).astype(np.float32))
    rows, dense = pool.rows(), pool.dense()
    assert len(rows[0]) == ROWS
    for count in (3, 1, 2):
        remaining = pool.routing.servers[:count]
        moved = pool.move([*remaining, *(pool.start() for _ in range(count - len(remaining)))])
        for mine, theirs in zip((*rows, *dense), (*pool.rows(), *pool.dense()), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert sum(each.rows for each in moved) < ROWS
        assert all(each.last_rows == 0 and each.frozen_s > 0 for each in moved)


def test_replacement_takes_over_only_the_old_servers_partitions(fleets: list[ServerPool]) -> None:
    pool = ServerPool(3)
    fleets.append(pool)
    lookup = pool.routing.lookup(np.arange(ROWS))
    starts = np.cumsum([0, *lookup.counts])
    for server, start, end in zip(pool.routing.servers, starts[:-1], starts[1:], strict=True):
        pool.ps(server).stores[0].fill(lookup.keys[start:end])
    first, _, third = pool.routing.servers
    moved = pool.move([first, pool.start(), third])
    assert [each.rows for each in moved] == [0, lookup.counts[1], 0]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["touch", "copy", "snapshot", "remove"]), st.integers(0, 500)), max_size=12
)


def contents(ps: ParameterServer) -> dict[int, float]:
    slots, keys = ps.stores[0].slots(0, ps.stores[0].top)
    return dict(zip(keys.tolist(), ps.stores[0].read(slots)[:, 0].tolist(), strict=True))


def touch(ps: ParameterServer, first: int, value: float) -> set[int]:
    keys = np.arange(first, first + 60, dtype=np.int64)
    ps.stores[0].update(ps.stores[0].locate(keys), np.full((60, 1), value, np.float32))
    return set(keys.tolist())


class Copied:
    """What has been sent, and something to be done amid it."""

    def __init__(self, amid: Callable[[], object] = lambda: None) -> None:
        self.rows: dict[int, float] = {}
        self.keys: list[int] = []
        self.dense: list[float] = []
        self.applied: list[list[tuple[int, int]]] = []
        self._amid = amid

    def insert(self, rows: EmbeddingRows) -> None:
        self.keys += rows.keys.tolist()
        self.rows |= dict(zip(rows.keys.tolist(), rows.weights[:, 0].tolist(), strict=True))
        self._amid()

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        self.dense = weights[:, 0].tolist()

    def put_applied(self, parts: object, samples: SampleRanges) -> None:
        self.applied.append(list(samples))


def everything(keys: Keys) -> Mask:
    return np.ones(len(keys), bool)


@settings(max_examples=30, deadline=None)
@given(changes=CHANGES, sizes=st.tuples(st.integers(1, 300), st.integers(1, 50)))
def test_migration_and_snapshot_each_get_every_change_once(
    changes: list[tuple[str, int]], sizes: tuple[int, int]
) -> None:
    """What each is sent makes its copy equal to the store, whatever the other one read."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(moving, "_SCAN_ROWS", sizes[0])
        patched.setattr(moving, "_CHUNK", sizes[1])
        ps = make_ps(width=1)
        copies: dict[str, dict[int, float]] = {"copy": {}, "snapshot": {}}
        touched: dict[str, set[int]] = {"copy": set(), "snapshot": set()}
        for number, (change, about) in enumerate([*changes, ("copy", 0), ("snapshot", 0)]):
            if change == "touch":
                keys = touch(ps, about, number)
                touched = {reader: had | keys for reader, had in touched.items()}
            elif change == "remove":
                gone = np.array([key for key in contents(ps) if about <= key < about + 60], np.int64)
                ps.stores[0].remove(gone)
                for reader in touched:
                    touched[reader] -= set(gone.tolist())
                    copies[reader] = {key: v for key, v in copies[reader].items() if key not in gone}
            else:
                copy = Copied()
                if change == "copy":
                    assert copy_unread(ps, MOVE, copy.insert, throttled=False) == len(copy.keys)
                else:
                    copy_snapshot(ps, copy, everything, all_rows=False, throttled=False)
                assert sorted(copy.keys) == sorted(touched[change])
                copies[change] |= copy.rows
                touched[change] = set()
        assert copies["copy"] == copies["snapshot"] == contents(ps)


@pytest.mark.parametrize(
    ("wait_s", "pieces"), [(1.0, [5, 10, 20, 40, 80, 80, 65]), (0.0, [5] * 60)], ids=["busy", "idle"]
)
def test_copy_takes_more_rows_at_once_where_the_lock_is_busy(
    monkeypatch: pytest.MonkeyPatch, wait_s: float, pieces: list[int]
) -> None:
    """Each wait for the lock takes `wait_s` seconds, and each piece half a second."""
    ps, sent = make_ps(width=1), list[int]()
    for first in range(0, 300, 60):
        touch(ps, first, 1.0)
    ps.stores[0].mark_all_for_migration()
    now, steps = 0.0, itertools.cycle([0.0, wait_s, 0.5])

    def clock() -> float:
        nonlocal now
        now += next(steps)
        return now

    monkeypatch.setattr(moving, "_CHUNK", 5)
    monkeypatch.setattr(moving, "time", SimpleNamespace(perf_counter=clock))
    copy_unread(ps, MOVE, lambda rows: sent.append(len(rows.keys)), throttled=False)
    assert sent == pieces


@settings(max_examples=30, deadline=None)
@given(
    before=st.lists(st.integers(0, 500), max_size=8),
    amid=st.lists(st.tuples(st.sampled_from(["touch", "remove"]), st.integers(0, 500)), max_size=12),
    again=st.booleans(),
)
def test_snapshot_has_the_state_at_its_start(before: list[int], amid: list[tuple[str, int]], again: bool) -> None:
    """Rows that change, appear or go while it is copied are in it as they were; the next one has what they became."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(moving, "_CHUNK", 7)
        ps, state = make_ps(width=1), {}
        for number, first in enumerate(before):
            touch(ps, first, number)
        if again:  # nothing of what comes is new to the next snapshot
            first_one = Copied()
            copy_snapshot(ps, first_one, everything, all_rows=False, throttled=False)
            state = first_one.rows
            for number, first in enumerate(before[::2]):
                touch(ps, first, 50 + number)
        moment, changes = contents(ps), iter(amid)

        def change() -> None:
            kind, first = next(changes, ("none", 0))
            if kind == "touch":
                touch(ps, first, 1000)
                ps.dense.update(np.ones(4, np.float32))
                ps.applied.add([(first, first + 1)], ALL_PARTS)
            elif kind == "remove":
                ps.stores[0].remove(np.array([key for key in contents(ps) if first <= key < first + 60], np.int64))

        copied = Copied(change)
        copy_snapshot(ps, copied, everything, all_rows=False, throttled=False)
        assert state | copied.rows == moment
        assert len(copied.keys) == len(set(copied.keys))
        assert (copied.dense, copied.applied) == ([0.0] * 4, [[]])
        later = Copied()
        copy_snapshot(ps, later, everything, all_rows=False, throttled=False)
        now = contents(ps)
        assert {key: v for key, v in (moment | later.rows).items() if key in now} == now
