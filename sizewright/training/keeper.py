"""Keeps the last snapshot of all rows and dense weights in memory, outside of every server, and writes it to disk."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.allocator import keep_freed_memory
from sizewright.spec import Job
from sizewright.training.dense import DenseSlice, dense_rule
from sizewright.training.embedding import EmbeddingStore, Rows
from sizewright.training.optimizers import Floats, make_rule
from sizewright.training.peers import Peer
from sizewright.training.replica_server import SinkServer
from sizewright.training.routing import PARTITIONS, Address, Owners, partition_of
from sizewright.training.snapshot_files import ARRAYS, SnapshotInfo, read_snapshot, write_snapshot

KEEPER = 0
"""The keeper's number among the sources of a server; servers count from 1."""
_CHUNK = 1 << 14


class Keeper:
    """A sink of rows. Runs in a process of its own, which does not share a server's fate."""

    def __init__(self, job: Job, dense: Floats, token: bytes, host: str) -> None:
        keep_freed_memory()
        self._token, self._job = token, job
        self._store = EmbeddingStore(job.model.row_width, make_rule(job.model.optimizer))
        self._dense = DenseSlice(0, dense, dense_rule(job.model.optimizer))
        self._lock = threading.Lock()
        self._restoring: Peer | None = None
        self._passed_bytes = 0
        self._server = SinkServer(self, token, host)

    def address(self) -> Address:
        """Where servers send their rows."""
        return self._server.address

    def insert(self, rows: Rows) -> None:
        """Rows of a server."""
        with self._lock:
            self._store.insert(rows)

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """A slice of the dense weights."""
        with self._lock:
            self._dense.put(start, weights, state)

    def arrived(self, version: int, source: int) -> None:
        """Nothing waits for it."""

    def rows(self) -> int:
        """Rows that are kept."""
        return self._store.rows

    def dense_weights(self) -> Floats:
        """The dense weights (d,) that are kept."""
        return self._dense.copy()

    def restore(self, address: Address, partitions: Owners, dense: slice, version: int) -> int:
        """Send a server the rows of partitions and its dense slice; returns the rows sent. `version` begins then."""
        peer = self._restoring = Peer(address, self._token, KEEPER)
        try:
            mine = np.zeros(PARTITIONS, bool)
            mine[partitions] = True
            sent = 0
            for start in range(0, self._store.top, _CHUNK):
                with self._lock:
                    slots, keys = self._store.slots(start, start + _CHUNK)
                    rows = self._store.take(slots[mine[partition_of(keys)]], 0)
                if len(rows.keys):
                    peer.insert(rows)
                    sent += len(rows.keys)
            with self._lock:
                part = self._dense.part(dense.start, dense.stop)
            peer.put_dense(*part)
            peer.done(version)
            return sent
        finally:
            peer.close()

    def copied_bytes(self) -> int:
        """Sent by the last `restore`, and read or written by all calls of `load` and `save`."""
        return self._passed_bytes + (self._restoring.sent_bytes if self._restoring else 0)

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def save(self, folder: str, trained: list[tuple[int, int]]) -> None:
        """Write a snapshot below `folder`, as `write_snapshot` does. Raises EngineError when the disk refuses."""
        with self._lock:
            slots, _ = self._store.slots(0, self._store.top)
            rows = self._store.take(slots, 0)
            _, dense, dense_state = self._dense.part(0, self._dense.end)
        arrays: dict[str, NDArray[Any]] = dict(
            zip(ARRAYS, (rows.keys, rows.weights, rows.state, dense, dense_state), strict=True)
        )
        samples = sum(end - start for start, end in trained)
        info = SnapshotInfo(self._job.hash, samples, [list(part) for part in trained], len(rows.keys))
        write_snapshot(folder, info, arrays, self._count)

    def load(self, folder: str) -> SnapshotInfo:
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
        return info

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def _count(self, count: int) -> None:
        self._passed_bytes += count
