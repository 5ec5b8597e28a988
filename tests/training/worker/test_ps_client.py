from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.embedding import EmbeddingRows
from sizewright.training.ps.migration import Migration
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.parameter_server import ParameterServer, WorkerState
from sizewright.training.ps.routing import Parts, Routing, Server
from sizewright.training.transport.exchange import (
    LEAVE,
    NO_SAMPLES,
    PUSH,
    STALE_REPLY,
    WANT_DENSE,
    ExchangeRequest,
    Reply,
    ReplyHead,
    reply_bytes,
    request_bytes,
)
from sizewright.training.worker.ps_client import DensePush, OutgoingPush, PsClient, Pull
from tests.helpers.training_parts import NO_FLOATS, in_threads, make_ps

DENSE = 11
KEYS = st.lists(st.integers(0, 30), unique=True, max_size=12)


class NearPeer:
    """A peer without a network between."""

    def __init__(self, ps: ParameterServer, source: int, version: int) -> None:
        self._ps, self._source, self._incoming = ps, source, ps.incoming(version)

    def insert(self, rows: EmbeddingRows) -> None:
        self._incoming.insert(rows)

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        self._incoming.put_dense(start, weights, state)

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        self._incoming.put_applied(parts, samples)

    def done(self, version: int) -> None:
        self._ps.arrived(version, self._source)


class World:
    """Servers in this process whose rows and dense weights start at 0, with one event of `fates` before each request.

    A number is a change to that many servers, of which as few as possible are new; `undone` is a cancelled change;
    `cut` a connection that breaks; `pushed` a push that is applied just before the routing changes.
    """

    def __init__(self, servers: int, fates: Iterator[object]) -> None:
        self.fates = fates
        self.servers: dict[int, ParameterServer] = {}
        self.routing = Routing.even(tuple(self._new(1, DENSE) for _ in range(servers)), DENSE)
        for server, part in zip(self.routing.servers, self.routing.slices(), strict=True):
            ps = self.servers[server.id]
            ps.dense = ps.dense.like(part.start, part.stop)
            ps.applied = ps.applied.keep(self.routing.parts_of(server.id))
        self.router = PsClient(self, 1, self.routing, [1], patience_s=5)
        self.refusals = 0

    def connect(self, server: Server, worker: int, answer_s: float = 0) -> NearLink:
        return NearLink(self, server.id, WorkerState(worker))

    def change(self, count: int, *, undone: bool = False) -> None:
        """A move while nobody asks, so that nobody has to wait."""
        remaining = self.routing.servers[1 : 1 + max(0, count - 1)]
        new = [self._new(0, 0) for _ in range(count - len(remaining))]
        target = self.routing.with_servers((*remaining, *new))
        self.router.announce(target)
        sources = {server.id for server in self.routing.servers}
        for server in target.servers:
            self.servers[server.id].expect(
                target.version, sources, target.dense_of(server.id), target.parts_of(server.id)
            )
        migrations = [
            Migration(
                self.servers[source],
                source,
                target,
                {s.id: NearPeer(self.servers[s.id], source, target.version) for s in target.servers if s.id != source},  # type: ignore[misc]
            )
            for source in sources
        ]
        for migration in migrations:
            migration.copy(throttled=False)
        if undone:
            migrations[0].finish()
            self.routing = self.routing._replace(version=target.version + 1)
            for source in sources:
                self.servers[source].roll_back(self.routing.version)
                Migration(self.servers[source], source, self.routing, {}).remove_moved_rows()
            for server in new:
                self.servers[server.id].close()
            self.router.announce(self.routing)
            return
        for migration in migrations:
            migration.finish()
            migration.remove_moved_rows()
        for source in sources:
            self.servers[source].drop_previous()
        self.routing = target

    def values(self) -> tuple[Floats, Floats, list[int]]:
        """All rows by key, all dense weights, and how often each key is held."""
        rows, copies = np.zeros(31, np.float32), [0] * 31
        dense = np.full(DENSE, np.nan, np.float32)
        for server in self.routing.servers:
            ps = self.servers[server.id]
            slots, keys = ps.stores[0].slots(0, ps.stores[0].top)
            rows[keys] = ps.stores[0].read(slots)[:, 0]
            for key in keys.tolist():
                copies[key] += 1
            dense[ps.dense.start : ps.dense.end] = ps.dense.copy()
        return rows, dense, copies

    def _new(self, version: int, dense: int) -> Server:
        number = len(self.servers) + 1
        self.servers[number] = make_ps(1, dense=dense, version=version, init_scale=0.0, total=DENSE)
        return Server(number, ("", number))


class NearLink:
    """A link whose requests are served at once."""

    def __init__(self, world: World, server: int, client: WorkerState) -> None:
        self.sent_bytes = self.received_bytes = 0
        self._world, self._server, self._client = world, server, client
        self._reply: Reply | None = None
        self._closed = False

    def send(self, request: ExchangeRequest) -> None:
        fate = next(self._world.fates, None)
        if self._closed:
            raise ConnectionError("closed")
        ps = self._world.servers[self._server]
        if isinstance(fate, int):
            self._world.change(fate)
        elif fate == "undone":
            self._world.change(2, undone=True)
        elif fate == "cut":
            self._world.change(2)
            raise ConnectionError("cut")
        self.sent_bytes += request_bytes(request)
        if fate == "pushed" and request.flags & PUSH and request.version == ps.version:
            ps.exchange(self._client, request._replace(keys=(), flags=request.flags & ~WANT_DENSE))
            self._world.change(2)
            self._reply = STALE_REPLY
        else:
            self._reply = ps.exchange(self._client, request)
        self._world.refusals += self._reply.state != 0

    def wait(self) -> ReplyHead:
        if self._closed or self._reply is None:
            raise ConnectionError("closed")
        return ReplyHead(self._reply.state, sum(map(len, self._reply.rows)), self._reply.dense.size)

    def read(self, rows: Sequence[Floats], dense: Floats) -> None:
        assert self._reply is not None
        np.copyto(rows[0], self._reply.rows[0])
        np.copyto(dense, self._reply.dense)
        self.received_bytes += reply_bytes(rows, dense)

    def close(self) -> None:
        self._closed = True


FATES = st.lists(
    st.one_of(st.none(), st.none(), st.integers(1, 4), st.sampled_from(["undone", "cut", "pushed"])), max_size=25
)


@settings(max_examples=150, deadline=None)
@given(servers=st.integers(1, 4), steps=st.lists(KEYS, min_size=1, max_size=8), fates=FATES, every=st.integers(1, 2))
def test_push_is_applied_once_under_any_routing_changes(
    servers: int, steps: list[list[int]], fates: list[object], every: int
) -> None:
    """Rows grow by 1 with each push that holds them, dense weights by 1 with each that has gradients for them.

    What is pulled has seen all pushes before it: one worker alone must find its own writes.
    """
    world = World(servers, iter(fates))
    router, counts, dense = world.router, np.zeros(31), 0
    before: OutgoingPush | None = None
    for tag, keys in enumerate([*steps, None], start=1):
        pull = None
        if keys is not None:
            lookup = router.routing.lookup(np.array(keys, np.int64))
            pull, version = Pull(tag, [lookup]), router.routing.version
        flags = WANT_DENSE if tag % every == 0 else 0
        dense_push = DensePush()
        if before and flags:
            dense_push = DensePush(np.full(DENSE, -1, np.float32), np.array([(before.start, before.end)]))
        rows = np.full((len(pull.lookups[0].keys) if pull else 0, 1), np.nan, np.float32)
        weights = np.full(DENSE, np.nan, np.float32)
        router.send(before, pull, dense_push, flags | (LEAVE if pull is None else 0))
        router.receive([rows], weights)
        if before:
            counts[before.lookups[0].keys] += 1
            dense += len(dense_push.grads) > 0
        if pull:
            np.testing.assert_array_equal(rows[:, 0], counts[lookup.keys])
            grads = np.full((len(lookup.keys), 1), -1, np.float32)
            before = OutgoingPush(tag, version, [lookup], [grads], tag, tag + 1)
        if flags:
            np.testing.assert_array_equal(weights, dense)
    values, dense_values, copies = world.values()
    np.testing.assert_array_equal(values, counts)
    np.testing.assert_array_equal(dense_values, dense)
    assert max(copies) <= 1
    assert all(not world.servers[server.id].sync.members for server in world.routing.servers)


def exchange(
    world: World, keys: list[int], push: OutgoingPush | None = None, dense: Floats = NO_FLOATS
) -> tuple[OutgoingPush, Floats]:
    """Pull keys and push; returns the next push, of gradient -1, and the dense weights."""
    router = world.router
    lookup, version = router.routing.lookup(np.array(keys, np.int64)), router.routing.version
    rows, weights = np.empty((len(keys), 1), np.float32), np.empty(DENSE, np.float32)
    samples = np.array([(push.start, push.end)]) if push and dense.size else NO_SAMPLES
    router.send(push, Pull(push.tag + 1 if push else 7, [lookup]), DensePush(dense, samples), WANT_DENSE)
    router.receive([rows], weights)
    tag = push.tag + 1 if push else 7
    return OutgoingPush(tag, version, [lookup], [np.full((len(keys), 1), -1, np.float32)], tag, tag + 1), weights


def test_pushed_slice_is_not_repeated_after_two_changes() -> None:
    """The first server takes its part; the second refuses, and so does the one that holds both parts next."""
    world = World(2, iter([None, None, None, 1, 1]))
    push, _ = exchange(world, list(range(31)))
    _, weights = exchange(world, [], push, np.full(DENSE, -1, np.float32))
    assert world.refusals == 2
    assert weights.tolist() == [1] * DENSE
    assert world.values()[0].tolist() == [1] * 31


def test_bytes_of_closed_links_stay_counted() -> None:
    world = World(3, iter(()))
    exchange(world, list(range(31)))
    sent, received = world.router.sent_bytes, world.router.received_bytes
    assert sent > 3 * 40
    world.change(1)
    exchange(world, list(range(31)))
    assert world.router.sent_bytes > sent
    assert world.router.received_bytes > received


@pytest.mark.parametrize("how", ["patience", "close"])
def test_wait_for_a_new_routing_times_out(how: str) -> None:
    world = World(2, iter(()))
    world.router._patience_s = 0.05 if how == "patience" else 60
    world.router._links[1].close()

    def refuse(*_: object) -> NearLink:
        raise ConnectionRefusedError

    world.connect = refuse  # type: ignore[method-assign]

    def receive() -> None:
        with pytest.raises(ConnectionError, match="nobody took its place"):
            exchange(world, [1, 2, 3])

    in_threads(*([receive] if how == "patience" else [receive, world.router.close]))
    if how == "close":
        with pytest.raises(ConnectionError):
            exchange(world, [1])


def test_only_a_later_routing_is_adopted_and_removed_servers_are_disconnected() -> None:
    world = World(2, iter(()))
    old = world.routing
    world.router.announce(old._replace(version=0))
    assert world.router._announced is old
    link = world.router._links[1]
    world.router.announce(old, gone=[1, 55])
    with pytest.raises(ConnectionError):
        link.wait()
    world.change(2)
    world.router.announce(old)
    exchange(world, [1, 2, 3])
    assert world.router.routing is world.routing


def test_server_that_returns_does_not_count_as_cut_off() -> None:
    world = World(2, iter(()))
    both = world.routing
    world.router._adopt(both.with_servers(both.servers[:1]))
    world.router._adopt(both)
    assert (world.router.cuts, world.router.cut_s) == (0, 0.0)
