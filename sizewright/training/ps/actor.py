"""The process of one parameter server in a session."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from sizewright.spec import Job, Role
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.applied import AppliedGroup
from sizewright.training.ps.dense import DenseSlice, dense_rule
from sizewright.training.ps.embedding import TABLE_SHIFT, EmbeddingStore, insert_rows
from sizewright.training.ps.migration import Migration, MigrationStats, copy_snapshot, copy_unread
from sizewright.training.ps.optimizers import Floats, make_rule
from sizewright.training.ps.parameter_server import ParameterServer, WorkerState
from sizewright.training.ps.routing import PARTS, Address, Counts, Parts, Routing, partition_of
from sizewright.training.ps.snapshot_store import SNAPSHOT_STORE
from sizewright.training.ps.sync import AsyncUpdates, SyncRounds
from sizewright.training.replicas.replica import Replica, Trees
from sizewright.training.transport.exchange import (
    PUSH,
    WANT_DENSE,
    ExchangeRequest,
    Reply,
    reply_bytes,
    request_bytes,
)
from sizewright.training.transport.listeners import PsServer
from sizewright.training.transport.peers import Peer

_WARM_UP_ROWS = 512
_DRAIN_S = 30.0


class PsSetup(NamedTuple):
    """The configuration of a server. A new server of a running session begins empty, at version 0."""

    job: Job
    number: int
    token: bytes
    host: str
    memory_bytes: int
    expected_rows: tuple[int, ...]
    """For each width of rows."""
    init_scale: float
    staleness: int | None
    dense: Floats
    """The slice of the dense weights that begins at `dense_start`."""
    dense_start: int
    dense_total: int
    """The size of the whole vector of dense weights."""
    parts: Parts
    """The parts that it holds from the start."""
    version: int = 0
    fill: float | None = None
    """If given, all rows of tables of this scale are created at once."""


class PsActor(Replica):
    """Runs one parameter server after another in one process."""

    role: Role = "ps"

    def __init__(self, trees: Trees, index: int) -> None:
        super().__init__(trees, index)
        self._ps: ParameterServer | None = None
        self._server: PsServer | None = None
        self._setup: PsSetup | None = None
        self._stores: list[EmbeddingStore] = []
        self._filled_with: object = None
        self._migration: Migration | None = None
        self._peers: dict[int, Peer] = {}
        self._store_peer: Peer | None = None
        self._snapshotting = threading.Lock()
        self._snapshots = 0  # begun so far

    def load(self, job: Job, program: object) -> None:
        """Load libraries and warm them up, since the first calls take several times as long."""
        rule, widths = make_rule(job.model.optimizer), [group.width for group in job.model.table_groups]
        dense = DenseSlice(0, np.zeros(8, np.float32), dense_rule(job.model.optimizer))
        ps = ParameterServer([EmbeddingStore(width, rule) for width in widths], dense, AsyncUpdates)
        state = WorkerState(0)
        keys = (np.arange(_WARM_UP_ROWS, dtype=np.int64),) * len(widths)
        grads = tuple(np.zeros((_WARM_UP_ROWS, width), np.float32) for width in widths)
        ps.exchange(state, ExchangeRequest(1, WANT_DENSE, pull_tag=1, keys=keys))
        push = ExchangeRequest(1, PUSH | WANT_DENSE, 1, row_grads=grads, dense_grads=np.zeros(8, np.float32))
        ps.exchange(state, push._replace(pull_tag=2, keys=keys))
        reader = ps.begin_snapshot(all_rows=True).reader
        copy_unread(ps, reader, lambda rows: insert_rows(ps.stores, rows), throttled=False)

    def prepare(self, setup: PsSetup) -> Address:
        """Create or fill the partitions, listen, and return the address."""
        self.close()
        job = setup.job
        fill_with = setup.fill and (job.model, setup.fill, setup.parts.tobytes())
        if not fill_with or self._filled_with != fill_with:
            self._stores, self._filled_with = [], None
        self.limits.set_memory(setup.memory_bytes)
        self.limits.reset_peaks()
        if not self._stores:
            self._stores = _make_stores(setup)
            self._filled_with = fill_with
        rule = dense_rule(job.model.optimizer)
        dense = DenseSlice(setup.dense_start, setup.dense, rule, total=setup.dense_total)
        sync = job.training.sync == "sync"
        self._ps = ParameterServer(
            self._stores,
            dense,
            lambda changed: SyncRounds(changed) if sync else AsyncUpdates(changed, setup.staleness),
            version=setup.version,
            parts=setup.parts,
            batch_ids=job.batch_size_for(job.worker_counts[-1]) * sum(job.model.tables.poolings),
        )
        self._setup = setup
        self._server = PsServer(self._ps, setup.token, setup.host)
        return self._server.address

    def close(self) -> None:
        """Stop serving; filled rows stay in memory, in case the next trial needs the same ones."""
        if self._server:
            self._server.close()
        for peer in self._open_peers():
            peer.close()
        self._server = self._ps = self._store_peer = self._migration = None
        self._peers = {}

    def discard(self) -> None:
        """Stop serving and free the rows."""
        self.close()
        self._stores, self._filled_with = [], None

    def exchange(self, worker: int, request: ExchangeRequest) -> Reply:
        """Serve one exchange through Ray, for sessions without direct connections."""
        assert self._server is not None
        with self._server.answering():
            try:
                reply = self._running.exchange(self._running.worker_state(worker), request)
            except OSError:  # as over TCP, the worker sends the request again
                raise
            except Exception as error:
                self._server.fault = f"{type(error).__name__}: {error}"  # the session replaces this server
                raise
            self._server.count(reply_bytes(reply.rows, reply.dense), request_bytes(request))
        return reply

    def expect(self, version: int, sources: set[int], dense: slice, parts: Parts, members: set[int]) -> None:
        """Call `ParameterServer.expect`; the workers `members` train already."""
        self._running.join(members)
        self._running.expect(version, sources, dense, parts)

    def copy_to(self, target: Routing) -> None:
        """Copy the rows that other servers hold under `target`, while training goes on."""
        assert self._setup is not None
        number, token = self._setup.number, self._setup.token
        self._filled_with = None
        self._peers = {s.id: Peer(s.address, token, number, target.version) for s in target.servers if s.id != number}
        self._migration = Migration(self._running, number, target, self._peers)
        self._migration.copy()

    def copied_bytes(self) -> int:
        """Return the bytes sent by the current copies; the number never falls while one lasts."""
        return sum(peer.sent_bytes for peer in self._open_peers())

    def finish_copy(self) -> MigrationStats:
        """Stop exchanges and finish the migration."""
        assert self._migration is not None
        return self._migration.finish()

    def free_moved_rows(self) -> None:
        """Free the rows that other servers hold after a change of the routing."""
        self._running.drop_previous()
        if self._migration is not None:
            self._migration.remove_moved_rows()
        for peer in self._peers.values():
            peer.close()
        self._peers, self._migration = {}, None

    def roll_back(self, routing: Routing) -> None:
        """Go back to `routing` after a failed change."""
        assert self._setup is not None
        self._running.roll_back(routing.version)
        self._migration = Migration(self._running, self._setup.number, routing, {})
        self.free_moved_rows()

    def start_version(self, version: int) -> None:
        """Begin a new version of the routing with the current weights."""
        self._running.start_version(version)

    def start_with_dense(self, version: int, dense: slice, weights: Floats) -> None:
        """Begin a version with dense weights alone: the former rows and all applied updates are lost."""
        ps = self._running
        _, _, state = ps.dense.like(dense.start, dense.stop).part(dense.start, dense.stop)
        ps.incoming(version).put_dense(dense.start, weights, state)
        ps.arrived(version, SNAPSHOT_STORE)

    def snapshot(self, store: Address, routing: Routing, *, throttled: bool = True) -> None:
        """Send the store the rows that have changed since the last snapshot and that this server holds by the routing.

        Other rows, which are being migrated to this server, stay unread.
        """
        with self._snapshotting:
            assert self._setup is not None
            self._snapshots += 1
            position = routing.position(self._setup.number)
            is_first = self._store_peer is None or self._store_peer.address != store
            if self._store_peer is None or is_first:
                if self._store_peer is not None:
                    self._store_peer.close()
                self._store_peer = Peer(store, self._setup.token, self._setup.number)
            try:
                copy_snapshot(
                    self._running,
                    self._store_peer,
                    lambda keys: routing.owners[partition_of(keys)] == position,
                    all_rows=is_first,
                    throttled=throttled,
                )
                self._store_peer.done(self._snapshots)
            except BaseException:
                self._store_peer.close()
                self._store_peer = None  # nobody knows what it has received: everything is sent again
                raise

    def forget(self, worker: int) -> list[AppliedGroup]:
        """Call `ParameterServer.forget`."""
        return self._running.forget(worker)

    def applied(self) -> tuple[list[AppliedGroup], int]:
        """Return the applied samples, and how many of them were applied twice."""
        return self._running.applied_groups(), self._running.applied.repeated

    def write_off(self, samples: SampleRanges) -> None:
        """Call `ParameterServer.write_off`."""
        self._running.write_off(samples)

    def partition_lookups(self) -> Counts:
        """Call `ParameterServer.partition_lookups`."""
        return self._running.partition_lookups()

    def drain(self) -> None:
        """Wait until every worker has received its pending replies, before this server leaves."""
        if self._server:
            self._server.drain(_DRAIN_S)

    def fault(self) -> str | None:
        """Return the error that broke an exchange, if any."""
        return self._server.fault if self._server else None

    @property
    def _running(self) -> ParameterServer:
        if self._ps is None:
            raise ConnectionError("the parameter server has closed")
        return self._ps

    def _open_peers(self) -> list[Peer]:
        return [*self._peers.values(), *([self._store_peer] if self._store_peer else [])]

    def _counters(self) -> dict[str, Any]:
        ps, server = self._ps, self._server
        if ps is None or server is None:
            return {}
        counts = ("rows", "embedding_bytes", "index_bytes", "device_bytes")
        sizes = {name: sum(getattr(store, name) for store in ps.stores) for name in counts}
        traffic = {"bytes_sent": server.sent_bytes, "bytes_received": server.received_bytes}
        device = {"device_memory_bytes": sizes.pop("device_bytes")}
        return asdict(ps.counters) | sizes | traffic | device


def _make_stores(setup: PsSetup) -> list[EmbeddingStore]:
    model = setup.job.model
    is_held = np.zeros(PARTS, bool)
    is_held[setup.parts] = True
    stores = []
    for i, (group, expected_rows) in enumerate(zip(model.table_groups, setup.expected_rows, strict=True)):
        store = EmbeddingStore(
            group.width,
            make_rule(model.optimizer),
            device=setup.job.training.embedding_device,
            expected_rows=expected_rows,
            seed=setup.number + (i << 32),  # rows of different widths are drawn independently
            init_scale=setup.init_scale,
        )
        sizes = model.tables.sizes(setup.fill) if setup.fill else ()
        for table in group.tables if sizes else ():
            keys = np.arange(sizes[table], dtype=np.int64) + (table << TABLE_SHIFT)
            store.fill(keys[is_held[partition_of(keys)]])
        stores.append(store)
    return stores
