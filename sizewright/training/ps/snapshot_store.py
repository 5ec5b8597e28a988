"""The process that holds the last snapshot of all weights in memory and writes it to disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.malloc import keep_freed_memory
from sizewright.spec import Job
from sizewright.training.host.private_folders import check_import_folder
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.applied import AppliedGroup, AppliedSamples
from sizewright.training.ps.dense import DenseSlice, dense_rule
from sizewright.training.ps.embedding import EmbeddingRows, EmbeddingStore, insert_rows
from sizewright.training.ps.optimizers import Floats, make_rule
from sizewright.training.ps.routing import PARTS, Address, Parts, partition_of
from sizewright.training.ps.snapshot_files import SnapshotInfo, read_snapshot, row_arrays, write_snapshot
from sizewright.training.transport.listeners import SinkServer
from sizewright.training.transport.peers import Peer

SNAPSHOT_STORE = 0
"""The store's number among the sources of a server; servers are numbered from 1."""
_CHUNK = 1 << 14


class SnapshotStore:
    """Receives snapshots of servers, and takes over each once it is complete.

    The snapshot of one server is of one moment; those of different servers are of different moments. This is safe
    because each part of the weights comes with its own applied samples: a sample that only some parts have is trained
    again, and applied to the others alone.

    It runs in its own process, so that it survives the failure of a server.
    """

    def __init__(self, job: Job, dense: Floats, token: bytes, host: str) -> None:
        check_import_folder()
        keep_freed_memory()
        self._token, self._job = token, job
        rule = make_rule(job.model.optimizer)
        self._stores = [EmbeddingStore(group.width, rule) for group in job.model.table_groups]
        self._dense = DenseSlice(0, dense, dense_rule(job.model.optimizer))
        self._applied = AppliedSamples([AppliedGroup(np.arange(PARTS), SampleRanges())])
        self._lock = threading.Lock()
        self._refused: set[int] = set()
        self._last_of: dict[int, int] = {}
        """The number of the last snapshot of each server."""
        self._restore_peer: Peer | None = None
        self._file_bytes = 0
        self._server = SinkServer(lambda source: _Incoming(self, source), token, host)

    def address(self) -> Address:
        """Return the address to which servers send their rows."""
        return self._server.address

    def refuse(self, sources: Sequence[int]) -> None:
        """Refuse snapshots from servers that were replaced."""
        with self._lock:
            self._refused.update(sources)

    def commit(self, snapshot: _Incoming, number: int) -> None:
        """Take over the complete snapshot of a server.

        Raise ConnectionError if the server was replaced, or if a later snapshot of it came first over another
        connection.
        """
        with self._lock:
            if snapshot.source in self._refused:
                raise ConnectionError("this server was replaced by another one")
            if number <= self._last_of.get(snapshot.source, 0):
                raise ConnectionError("a later snapshot of this server came first")
            self._last_of[snapshot.source] = number
            for rows in snapshot.rows:
                insert_rows(self._stores, rows)
            for part in snapshot.dense:
                self._dense.put(*part)
            for parts, samples in snapshot.applied:
                self._applied.put(parts, samples)

    def rows(self) -> int:
        """Return the number of stored rows."""
        return sum(store.rows for store in self._stores)

    def dense_weights(self) -> Floats:
        """Return the stored dense weights (d,)."""
        return self._dense.copy()

    def restore(self, address: Address, parts: Parts, dense: slice, version: int) -> int:
        """Send a server the rows of its partitions, its dense slice and their applied samples.

        The server then begins `version` of the routing. Return the number of rows sent.
        """
        peer = self._restore_peer = Peer(address, self._token, SNAPSHOT_STORE, version)
        try:
            is_held = np.zeros(PARTS, bool)
            is_held[parts] = True
            sent = 0
            for store, start in [(each, start) for each in self._stores for start in range(0, each.top, _CHUNK)]:
                with self._lock:
                    slots, keys = store.slots(start, start + _CHUNK)
                    rows = store.rows_at(slots[is_held[partition_of(keys)]])
                if len(rows.keys):
                    peer.insert(rows)
                    sent += len(rows.keys)
            with self._lock:
                part = self._dense.part(dense.start, dense.stop)
                groups = self._applied.keep(parts).groups()
            peer.put_dense(*part)
            for group in groups:
                peer.put_applied(*group)
            peer.done(version)
            return sent
        finally:
            peer.close()

    def copied_bytes(self) -> int:
        """Return the bytes sent by the last `restore`, and read or written by all calls of `load` and `save`."""
        return self._file_bytes + (self._restore_peer.sent_bytes if self._restore_peer else 0)

    def node(self) -> str:
        """Return the id of the Ray node that the store runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def pid(self) -> int:
        """Return the store's process id."""
        return os.getpid()

    def save(self, folder: str, lost: int, repeated: int, previous: Path | None = None) -> int:
        """Write a snapshot below `folder`, as `write_snapshot` does; return the number of samples in it.

        A run that resumes it continues to count from `lost` updates and `repeated` samples. Raise EngineError if the
        disk refuses.
        """
        arrays: dict[str, NDArray[Any]] = {}
        with self._lock:
            for store, names in zip(self._stores, self._names, strict=True):
                arrays |= zip(names, store.rows_at(store.slots(0, store.top)[0]), strict=True)
            _, arrays["dense"], arrays["dense_state"] = self._dense.part(0, self._dense.end)
            groups = self._applied.groups()
            rows = sum(store.rows for store in self._stores)
        info = SnapshotInfo(self._job.hash, rows, groups, lost, repeated)
        write_snapshot(folder, info, arrays, self._count, previous)
        return info.trained.total

    def load(self, folder: str) -> None:
        """Read the latest snapshot below `folder`. Raise JobError as `read_snapshot` does."""
        info, arrays = read_snapshot(folder, self._job)
        with self._lock:
            for store, names in zip(self._stores, self._names, strict=True):
                for start in range(0, len(arrays[names[0]]), _CHUNK):
                    rows = EmbeddingRows(*(np.array(arrays[name][start : start + _CHUNK]) for name in names))
                    store.insert(rows)
                    self._count(rows.weights.nbytes)
            dense = np.array(arrays["dense"])
            self._dense = DenseSlice(0, dense, dense_rule(self._job.model.optimizer))
            self._dense.put(0, dense, np.array(arrays["dense_state"]))
            self._applied = AppliedSamples(info.applied)

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    @property
    def _names(self) -> list[tuple[str, ...]]:
        """The names of the arrays of each store's keys, weights and state in files."""
        return row_arrays([store.width for store in self._stores])

    def _count(self, count: int) -> None:
        self._file_bytes += count


class _Incoming:
    """The snapshot of one server while it arrives."""

    def __init__(self, store: SnapshotStore, source: int) -> None:
        self.source = source
        self._store = store
        self._begin()

    def _begin(self) -> None:
        self.rows: list[EmbeddingRows] = []
        self.dense: list[tuple[int, Floats, Floats]] = []
        self.applied: list[AppliedGroup] = []

    def insert(self, rows: EmbeddingRows) -> None:
        """Collect rows."""
        self.rows.append(rows)

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """Collect a slice of the dense weights."""
        self.dense.append((start, weights, state))

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        """Collect the applied samples of parts."""
        self.applied.append(AppliedGroup(parts, samples))

    def arrived(self, version: int, source: int) -> None:
        """Hand the complete snapshot to the store; `version` is its number among those of the server."""
        self._store.commit(self, version)
        self._begin()
