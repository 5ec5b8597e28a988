"""One parameter server as a process of a session."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from sizewright.spec import Job, Role
from sizewright.training.dense import DenseSlice, dense_rule
from sizewright.training.embedding import TABLE_SHIFT, EmbeddingStore
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.optimizers import Floats, make_rule
from sizewright.training.ps.applied import AppliedGroup
from sizewright.training.ps.migration import Migration, Moved, copy_snapshot, copy_unread
from sizewright.training.ps.parameter_server import Client, ParameterServer
from sizewright.training.ps.snapshot_store import SNAPSHOT_STORE
from sizewright.training.ps.sync import AsyncUpdates, SyncRounds
from sizewright.training.replica import Replica, Trees
from sizewright.training.routing import PARTS, Address, Counts, Parts, Routing, partition_of
from sizewright.training.transport.exchange import (
    PUSH,
    WANT_DENSE,
    Reply,
    Request,
    reply_bytes,
    request_bytes,
)
from sizewright.training.transport.listeners import PsServer
from sizewright.training.transport.peers import Peer

_WARM_UP_ROWS = 512
_DRAIN_S = 30.0


class PsSetup(NamedTuple):
    """What a server is to hold. A newcomer to a running session begins empty, at version 0."""

    job: Job
    number: int
    token: bytes
    host: str
    memory_bytes: int
    expected_rows: int
    spread: float
    staleness: int | None
    dense: Floats
    """The slice of the dense weights, from `dense_start`."""
    dense_start: int
    dense_total: int
    """Size of the whole vector."""
    parts: Parts
    """What it holds from the start."""
    version: int = 0
    fill: float | None = None
    """The scale of the tables whose rows are made at once."""


class PsActor(Replica):
    """Made once, prepared for any number of partitions one after the other."""

    role: Role = "ps"

    def __init__(self, trees: Trees, index: int) -> None:
        super().__init__(trees, index)
        self._ps: ParameterServer | None = None
        self._server: PsServer | None = None
        self._setup: PsSetup | None = None
        self._store: EmbeddingStore | None = None
        self._filled: object = None
        self._mover: Migration | None = None
        self._peers: dict[int, Peer] = {}
        self._store_peer: Peer | None = None
        self._snapshotting = threading.Lock()

    def load(self, job: Job, program: object) -> None:
        """Libraries are loaded, and have served once, when this returns: first times take several times as long."""
        width = job.model.row_width
        rule, dense = (
            make_rule(job.model.optimizer),
            DenseSlice(0, np.zeros(8, np.float32), dense_rule(job.model.optimizer)),
        )
        ps = ParameterServer(EmbeddingStore(width, rule), dense, AsyncUpdates)
        client, keys = Client(0), np.arange(_WARM_UP_ROWS, dtype=np.int64)
        grads = np.zeros((len(keys), width), np.float32)
        ps.exchange(client, Request(1, WANT_DENSE, pull_tag=1, keys=keys))
        push = Request(1, PUSH | WANT_DENSE, 1, row_grads=grads, dense_grads=np.zeros(8, np.float32))
        ps.exchange(client, push._replace(pull_tag=2, keys=keys))
        copy_unread(ps, ps.begin_snapshot(all_rows=True).reader, ps.store.insert, polite=False)

    def prepare(self, setup: PsSetup) -> Address:
        """Make or fill the partitions and listen; returns the address."""
        self.close()
        job = setup.job
        filled = setup.fill and (job.model, setup.fill, setup.parts.tobytes())
        if not filled or self._filled != filled:
            self._store = self._filled = None
        self.limits.set_memory(setup.memory_bytes)
        self.limits.reset_peaks()
        if self._store is None:
            self._store = self._make_store(setup)
            self._filled = filled
        rule = dense_rule(job.model.optimizer)
        dense = DenseSlice(setup.dense_start, setup.dense, rule, total=setup.dense_total)
        sync = job.training.sync == "sync"
        self._ps = ParameterServer(
            self._store,
            dense,
            lambda changed: SyncRounds(changed) if sync else AsyncUpdates(changed, setup.staleness),
            version=setup.version,
            parts=setup.parts,
        )
        self._setup = setup
        self._server = PsServer(self._ps, setup.token, setup.host)
        return self._server.address

    def close(self) -> None:
        """Stop serving; filled rows stay, in case the next trial needs the same."""
        if self._server:
            self._server.close()
        for peer in self._open_peers():
            peer.close()
        self._server = self._ps = self._store_peer = self._mover = None
        self._peers = {}

    def discard(self) -> None:
        """Stop serving and give the rows up."""
        self.close()
        self._store = self._filled = None

    def exchange(self, worker: int, request: Request) -> Reply:
        """Serve one exchange through Ray, where the direct connection is not used."""
        assert self._server is not None
        with self._server.answering():
            reply = self._running.exchange(self._running.client(worker), request)
            self._server.count(reply_bytes(1, reply.dense.size, reply.rows.size), request_bytes(request))
        return reply

    def expect(self, version: int, sources: set[int], dense: slice, parts: Parts, members: set[int]) -> None:
        """See ParameterServer.expect; `members` train already."""
        self._running.join(members)
        self._running.expect(version, sources, dense, parts)

    def copy_to(self, target: Routing) -> None:
        """Copy what this server will not hold under `target`, while training goes on."""
        assert self._setup is not None
        number, token = self._setup.number, self._setup.token
        self._filled = None
        self._peers = {s.id: Peer(s.address, token, number, target.version) for s in target.servers if s.id != number}
        self._mover = Migration(self._running, number, target, self._peers)
        self._mover.copy()

    def copied_bytes(self) -> int:
        """Sent in the copies under way; does not go back while one lasts."""
        return sum(peer.sent_bytes for peer in self._open_peers())

    def finish_copy(self) -> Moved:
        """The last moment of a move."""
        assert self._mover is not None
        return self._mover.finish()

    def settle(self) -> None:
        """After a change: free what is held elsewhere."""
        self._running.settle()
        if self._mover is not None:
            self._mover.forget_moved()
        for peer in self._peers.values():
            peer.close()
        self._peers, self._mover = {}, None

    def roll_back(self, routing: Routing) -> None:
        """A change has failed: hold again what `routing` says."""
        assert self._setup is not None
        self._running.roll_back(routing.version)
        self._mover = Migration(self._running, self._setup.number, routing, {})
        self.settle()

    def begin(self, version: int) -> None:
        """A new version with everything as it is."""
        self._running.begin(version)

    def begin_with(self, version: int, dense: slice, weights: Floats) -> None:
        """Begin a version with dense weights alone: the rows that were here are lost, and all that was applied."""
        ps = self._running
        ps.incoming(version).put_dense(
            dense.start, weights, ps.dense.like(dense.start, dense.stop).part(dense.start, dense.stop)[2]
        )
        ps.arrived(version, SNAPSHOT_STORE)

    def snapshot(self, store: Address, routing: Routing, *, polite: bool = True) -> None:
        """Send the store what has changed since the last time, of what this server holds by the routing.

        Rows that are on their way to it stay unread.
        """
        with self._snapshotting:
            self._snapshot(store, routing, polite)

    def _snapshot(self, store: Address, routing: Routing, polite: bool) -> None:
        assert self._setup is not None
        all_rows, mine = False, routing.position(self._setup.number)
        if self._store_peer is None or self._store_peer.address != store:
            self._store_peer, all_rows = Peer(store, self._setup.token, self._setup.number), True
        try:
            copy_snapshot(
                self._running,
                self._store_peer,
                lambda keys: routing.owners[partition_of(keys)] == mine,
                all_rows=all_rows,
                polite=polite,
            )
            self._store_peer.done(routing.version)
        except BaseException:
            self._store_peer.close()
            self._store_peer = None  # what it has got is not known: everything is sent again
            raise

    def forget(self, worker: int) -> list[AppliedGroup]:
        """See ParameterServer.forget."""
        return self._running.forget(worker)

    def applied(self) -> tuple[list[AppliedGroup], int]:
        """What is applied here, and how many samples were twice."""
        return self._running.applied_groups(), self._running.applied.repeated

    def write_off(self, samples: SampleRanges) -> None:
        """See ParameterServer.write_off."""
        self._running.write_off(samples)

    def partition_lookups(self) -> Counts:
        """Look-ups of each partition, in a sample of the latest pulls of the present version of the routing."""
        return self._running.partition_lookups()

    def drain(self) -> None:
        """A server that leaves: wait until every worker has the replies that are on their way."""
        if self._server:
            self._server.drain(_DRAIN_S)

    def fault(self) -> str | None:
        """What broke an exchange."""
        return self._server.fault if self._server else None

    @property
    def _running(self) -> ParameterServer:
        if self._ps is None:
            raise ConnectionError("the parameter server has closed")
        return self._ps

    def _open_peers(self) -> list[Peer]:
        return [*self._peers.values(), *([self._store_peer] if self._store_peer else [])]

    def _make_store(self, setup: PsSetup) -> EmbeddingStore:
        job = setup.job
        store = EmbeddingStore(
            job.model.row_width,
            make_rule(job.model.optimizer),
            device=job.training.embedding_device,
            expected_rows=setup.expected_rows,
            seed=setup.number,
            spread=setup.spread,
        )
        if setup.fill:
            mine = np.zeros(PARTS, bool)
            mine[setup.parts] = True
            for table, rows in enumerate(job.model.tables.sizes(setup.fill)):
                keys = np.arange(rows, dtype=np.int64) + (table << TABLE_SHIFT)
                store.fill(keys[mine[partition_of(keys)]])
        return store

    def _counters(self) -> dict[str, Any]:
        ps, server = self._ps, self._server
        if ps is None or server is None:
            return {}
        store = ps.store
        sizes = {"rows": store.rows, "embedding_bytes": store.embedding_bytes, "index_bytes": store.index_bytes}
        traffic = {"bytes_sent": server.sent_bytes, "bytes_received": server.received_bytes}
        return asdict(ps.counters) | sizes | traffic | {"device_memory_bytes": store.device_bytes}
