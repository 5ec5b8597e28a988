"""Keeps the last snapshot of all rows and dense weights in memory, outside of every server, and writes it to disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.allocator import keep_freed_memory
from sizewright.spec import Job
from sizewright.training.dense import DenseSlice, dense_rule
from sizewright.training.embedding import EmbeddingStore, Rows
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.optimizers import Floats, make_rule
from sizewright.training.ps.applied import AppliedGroup, AppliedSamples
from sizewright.training.routing import PARTS, Address, Parts, partition_of
from sizewright.training.snapshot_files import ARRAYS, SnapshotInfo, read_snapshot, write_snapshot
from sizewright.training.transport.listeners import SinkServer
from sizewright.training.transport.peers import Peer

SNAPSHOT_STORE = 0
"""The store's number among the sources of a server; servers count from 1."""
_CHUNK = 1 << 14


class SnapshotStore:
    """Takes snapshots of servers, each of one moment: what has come of one counts when all of it has.

    Runs in a process of its own, which does not share a server's fate.
    """

    def __init__(self, job: Job, dense: Floats, token: bytes, host: str) -> None:
        keep_freed_memory()
        self._token, self._job = token, job
        self._store = EmbeddingStore(job.model.row_width, make_rule(job.model.optimizer))
        self._dense = DenseSlice(0, dense, dense_rule(job.model.optimizer))
        self._applied = AppliedSamples([AppliedGroup(np.arange(PARTS), SampleRanges())])
        self._lock = threading.Lock()
        self._refused: set[int] = set()
        self._restoring: Peer | None = None
        self._passed_bytes = 0
        self._server = SinkServer(lambda source: _Incoming(self, source), token, host)

    def address(self) -> Address:
        """Where servers send their rows."""
        return self._server.address

    def refuse(self, sources: Sequence[int]) -> None:
        """Take nothing more from servers that others replace."""
        with self._lock:
            self._refused.update(sources)

    def commit(self, came: _Incoming) -> None:
        """Take over the whole snapshot of a server. Raises ConnectionError for one that is refused."""
        with self._lock:
            if came.source in self._refused:
                raise ConnectionError("another server has taken the place of this one")
            for rows in came.rows:
                self._store.insert(rows)
            for part in came.dense:
                self._dense.put(*part)
            for parts, samples in came.applied:
                self._applied.put(parts, samples)

    def rows(self) -> int:
        """Rows that are kept."""
        return self._store.rows

    def dense_weights(self) -> Floats:
        """The dense weights (d,) that are kept."""
        return self._dense.copy()

    def restore(self, address: Address, parts: Parts, dense: slice, version: int) -> int:
        """Send a server the rows of its partitions, its dense slice and what is applied to them; returns the rows sent.
        `version` begins then."""
        peer = self._restoring = Peer(address, self._token, SNAPSHOT_STORE, version)
        try:
            mine = np.zeros(PARTS, bool)
            mine[parts] = True
            sent = 0
            for start in range(0, self._store.top, _CHUNK):
                with self._lock:
                    slots, keys = self._store.slots(start, start + _CHUNK)
                    rows = self._store.rows_at(slots[mine[partition_of(keys)]])
                if len(rows.keys):
                    peer.insert(rows)
                    sent += len(rows.keys)
            with self._lock:
                part, groups = self._dense.part(dense.start, dense.stop), self._applied.keep(parts).groups()
            peer.put_dense(*part)
            for group in groups:
                peer.put_applied(*group)
            peer.done(version)
            return sent
        finally:
            peer.close()

    def copied_bytes(self) -> int:
        """Sent by the last `restore`, and read or written by all calls of `load` and `save`."""
        return self._passed_bytes + (self._restoring.sent_bytes if self._restoring else 0)

    def node(self) -> str:
        """The Ray node that it runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def save(self, folder: str, lost: int, repeated: int) -> int:
        """Write a snapshot below `folder`, as `write_snapshot` does; returns the samples that it has seen.

        `lost` and `repeated` are told again by a run that goes on from it. Raises EngineError when the disk refuses.
        """
        with self._lock:
            slots, _ = self._store.slots(0, self._store.top)
            rows = self._store.rows_at(slots)
            _, dense, dense_state = self._dense.part(0, self._dense.end)
            groups = self._applied.groups()
        arrays: dict[str, NDArray[Any]] = dict(
            zip(ARRAYS, (rows.keys, rows.weights, rows.state, dense, dense_state), strict=True)
        )
        info = SnapshotInfo(self._job.hash, len(rows.keys), groups, lost, repeated)
        write_snapshot(folder, info, arrays, self._count)
        return info.trained.total

    def load(self, folder: str) -> None:
        """Read the latest snapshot below `folder`. Raises JobError as `read_snapshot` does."""
        info, arrays = read_snapshot(folder, self._job)
        with self._lock:
            for start in range(0, len(arrays["keys"]), _CHUNK):
                part = slice(start, start + _CHUNK)
                rows = Rows(*(np.array(arrays[name][part]) for name in ("keys", "weights", "state")))
                self._store.insert(rows)
                self._count(rows.weights.nbytes)
            dense = np.array(arrays["dense"])
            self._dense = DenseSlice(0, dense, dense_rule(self._job.model.optimizer))
            self._dense.put(0, dense, np.array(arrays["dense_state"]))
            self._applied = AppliedSamples(info.applied)

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def _count(self, count: int) -> None:
        self._passed_bytes += count


class _Incoming:
    """The snapshot of one server on its way."""

    def __init__(self, store: SnapshotStore, source: int) -> None:
        self.source, self._store = source, store
        self._begin()

    def _begin(self) -> None:
        self.rows: list[Rows] = []
        self.dense: list[tuple[int, Floats, Floats]] = []
        self.applied: list[AppliedGroup] = []

    def insert(self, rows: Rows) -> None:
        """Take rows."""
        self.rows.append(rows)

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """Take a slice of the dense weights."""
        self.dense.append((start, weights, state))

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        """Take which samples are applied to parts."""
        self.applied.append(AppliedGroup(parts, samples))

    def arrived(self, version: int, source: int) -> None:
        """All has come."""
        self._store.commit(self)
        self._begin()
