"""One parameter server as a process of a session."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from sizewright.spec import Job, Role
from sizewright.training.dense import DenseSlice, dense_rule
from sizewright.training.embedding import TABLE_SHIFT, EmbeddingStore
from sizewright.training.exchange import (
    NO_FLOATS,
    NO_KEYS,
    PUSH,
    WANT_DENSE,
    Reply,
    Request,
    reply_bytes,
    request_bytes,
)
from sizewright.training.keeper import KEEPER
from sizewright.training.moving import SNAPSHOT, Moved, Mover, copy_unread
from sizewright.training.optimizers import Floats, make_rule
from sizewright.training.pacing import Free, Rounds
from sizewright.training.peers import Peer
from sizewright.training.ps import Client, ParameterServer
from sizewright.training.replica import Replica, Trees
from sizewright.training.replica_server import PsServer
from sizewright.training.routing import PARTITIONS, Address, Counts, Owners, Routing, partition_of

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
    version: int = 0
    fill: tuple[float, Owners] | None = None
    """A table scale and the partitions whose rows are made at once."""


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
        self._mover: Mover | None = None
        self._peers: dict[int, Peer] = {}
        self._keeper: Peer | None = None
        self._clients: dict[int, Client] = {}
        self._snapshotting = threading.Lock()

    def load(self, job: Job, program: object) -> None:
        """Libraries are loaded, and have served once, when this returns: first times take several times as long."""
        width = job.model.row_width
        rule, dense = (
            make_rule(job.model.optimizer),
            DenseSlice(0, np.zeros(8, np.float32), dense_rule(job.model.optimizer)),
        )
        ps = ParameterServer(EmbeddingStore(width, rule), dense, Free)
        client, keys = Client(0), np.arange(_WARM_UP_ROWS, dtype=np.int64)
        grads = np.zeros((len(keys), width), np.float32)
        ps.exchange(client, Request(1, WANT_DENSE, 0, NO_KEYS, grads[:0], 0, NO_FLOATS, 1, keys))
        ps.exchange(client, Request(1, PUSH | WANT_DENSE, 1, NO_KEYS, grads, 0, np.zeros(8, np.float32), 2, keys))
        copy_unread(ps, SNAPSHOT, ps.insert, polite=False)

    def prepare(self, setup: PsSetup) -> Address:
        """Make or fill the partitions and listen; returns the address."""
        self.close()
        job = setup.job
        filled = setup.fill and (job.model, setup.fill[0], setup.fill[1].tobytes())
        if not filled or self._filled != filled:
            self._store = self._filled = None
        self.limits.set_memory(setup.memory_bytes)
        self.limits.reset_peaks()
        if self._store is None:
            self._store = self._make_store(setup)
            self._filled = filled
        dense = DenseSlice(setup.dense_start, setup.dense, dense_rule(job.model.optimizer))
        sync = job.training.sync == "sync"
        self._ps = ParameterServer(
            self._store,
            dense,
            lambda changed: Rounds(changed) if sync else Free(changed, setup.staleness),
            version=setup.version,
        )
        self._setup = setup
        self._server = PsServer(self._ps, setup.token, setup.host)
        return self._server.address

    def close(self) -> None:
        """Stop serving; filled rows stay, in case the next trial needs the same."""
        if self._server:
            self._server.close()
        for peer in [*self._peers.values(), *([self._keeper] if self._keeper else [])]:
            peer.close()
        self._server = self._ps = self._keeper = self._mover = None
        self._peers, self._clients = {}, {}

    def discard(self) -> None:
        """Stop serving and give the rows up."""
        self.close()
        self._store = self._filled = None

    def exchange(self, worker: int, request: Request) -> Reply:
        """Serve one exchange through Ray, where the direct connection is not used."""
        assert self._server is not None
        with self._server.answering():
            reply = self._running.exchange(self._clients.setdefault(worker, Client(worker)), request)
            self._server.count(reply_bytes(1, reply.dense.size, reply.rows.size), request_bytes(request))
        return reply

    def expect(self, version: int, sources: set[int], dense: slice, members: set[int]) -> None:
        """See ParameterServer.expect; `members` train already."""
        self._running.join(members)
        self._running.expect(version, sources, dense)

    def copy_to(self, target: Routing) -> None:
        """Copy what this server will not hold under `target`, while training goes on."""
        assert self._setup is not None
        number, token = self._setup.number, self._setup.token
        self._filled = None
        self._peers = {s.id: Peer(s.address, token, number) for s in target.servers if s.id != number}
        self._mover = Mover(self._running, number, target, self._peers)
        self._mover.copy()

    def copied_bytes(self) -> int:
        """Sent in the copies under way; does not go back while one lasts."""
        return sum(peer.sent_bytes for peer in [*self._peers.values(), *([self._keeper] if self._keeper else [])])

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

    def roll_back(self, routing: Routing) -> int:
        """A change has failed: hold again what `routing` says; returns the updates that are lost by that."""
        assert self._setup is not None
        lost = self._running.roll_back(routing.version)
        self._mover = Mover(self._running, self._setup.number, routing, {})
        self.settle()
        return lost

    def begin(self, version: int) -> None:
        """A new version with everything as it is."""
        self._running.begin(version)

    def begin_with(self, version: int, dense: slice, weights: Floats) -> None:
        """Begin a version with dense weights alone: the rows that were here are lost."""
        ps = self._running
        ps.put_dense(dense.start, weights, ps.dense.like(dense.start, dense.stop).part(dense.start, dense.stop)[2])
        ps.arrived(version, KEEPER)

    def snapshot(self, keeper: Address, routing: Routing, *, polite: bool = True) -> None:
        """Send the keeper what has changed since the last time, of what this server holds by the routing.

        Rows that are on their way to it stay unread.
        """
        with self._snapshotting:
            self._snapshot(keeper, routing, polite)

    def _snapshot(self, keeper: Address, routing: Routing, polite: bool) -> None:
        assert self._setup is not None
        all_rows, mine = False, routing.position(self._setup.number)
        if self._keeper is None or self._keeper.address != keeper:
            self._keeper = Peer(keeper, self._setup.token, self._setup.number)
            all_rows = True
        ps = self._running
        if all_rows:
            with ps.locked() as store:
                store.forget_reader(SNAPSHOT)
        try:
            copy_unread(
                ps,
                SNAPSHOT,
                self._keeper.insert,
                wanted=lambda keys: routing.owners[partition_of(keys)] == mine,
                still_unread=True,
                polite=polite,
            )
            with ps.locked():
                part = ps.dense.part(ps.dense.start, ps.dense.end)
            self._keeper.put_dense(*part)
        except OSError:
            self._keeper.close()
            self._keeper = None  # what it has got is not known: everything is sent again
            raise

    def leave(self, worker: int) -> int:
        """A worker has gone; returns the tag of its last push."""
        self._clients.pop(worker, None)
        return self._running.forget(worker)

    def pushes(self) -> int:
        """Applied so far."""
        return self._running.counters.pushes

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
            scale, partitions = setup.fill
            mine = np.zeros(PARTITIONS, bool)
            mine[partitions] = True
            for table, rows in enumerate(job.model.tables.sizes(scale)):
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
