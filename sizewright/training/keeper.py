"""Keeps the last snapshot of all rows and dense weights in memory, outside of every server, and writes it to disk."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.allocator import keep_freed_memory
from sizewright.errors import EngineError, JobError
from sizewright.spec import Job
from sizewright.training.dense import DenseSlice, dense_rule
from sizewright.training.embedding import EmbeddingStore, Rows
from sizewright.training.optimizers import Floats, make_rule
from sizewright.training.peers import Peer
from sizewright.training.replica_server import SinkServer
from sizewright.training.routing import PARTITIONS, Address, Owners, partition_of

KEEPER = 0
"""The keeper's number among the sources of a server; servers count from 1."""
_CHUNK = 1 << 14
_META, _ARRAYS = "snapshot.json", ("keys", "weights", "state", "dense", "dense_state")
_PREFIX = "snapshot-"


class SnapshotInfo(NamedTuple):
    """What a snapshot on disk is of."""

    job_hash: str
    samples: int
    trained: list[list[int]]
    rows: int


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
        """Write a snapshot into a new folder below `folder`, then remove the older ones.

        Raises EngineError when the disk refuses; an older snapshot then stays.
        """
        number = 1 + max([_number(path) for path in snapshots(folder)], default=0)
        new = Path(folder) / f".{_PREFIX}{number:06d}"
        try:
            new.mkdir(parents=True, exist_ok=True)
            self._write(new, trained)
            place = Path(folder) / new.name.removeprefix(".")
            shutil.rmtree(place, ignore_errors=True)  # half of one that a crash of the machine has left
            os.replace(new, place)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            reason = (error.strerror or f"it may be full ({error})").lower()  # numpy tells only what is left out
            raise EngineError(
                f"A snapshot could not be written to {folder}: {reason}.",
                "Free some space there or name another folder; training goes on with the snapshot in memory.",
            ) from None
        for path in snapshots(folder)[:-1]:
            shutil.rmtree(path, ignore_errors=True)

    def load(self, folder: str) -> SnapshotInfo:
        """Read the latest snapshot below `folder`. Raises JobError when there is none or it is of another job."""
        path, info = read_info(folder, self._job)
        arrays = _open_arrays(path)
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

    def _write(self, path: Path, trained: list[tuple[int, int]]) -> None:
        with self._lock:
            slots, _ = self._store.slots(0, self._store.top)
            rows = self._store.take(slots, 0)
            _, dense, dense_state = self._dense.part(0, self._dense.end)
        values: tuple[Any, ...] = (rows.keys, rows.weights, rows.state, dense, dense_state)
        for name, array in zip(_ARRAYS, values, strict=True):
            with open(path / f"{name}.npy", "wb") as stream:
                np.save(_Counted(stream, self._count), array)
                stream.flush()
                os.fsync(stream.fileno())
        samples = sum(end - start for start, end in trained)
        info = SnapshotInfo(self._job.hash, samples, [list(part) for part in trained], len(rows.keys))
        with open(path / _META, "w", encoding="utf-8") as text:
            text.write(json.dumps(info._asdict()))
            text.flush()
            os.fsync(text.fileno())


class _Counted:
    """A file that tells what has been written to it, piece by piece."""

    def __init__(self, stream: BinaryIO, count: Callable[[int], None]) -> None:
        self._stream, self._count = stream, count

    def write(self, data: bytes) -> int:
        written = self._stream.write(data)
        self._count(written)
        return written


def snapshots(folder: str | Path) -> list[Path]:
    """The whole snapshots below a folder, the latest last."""
    return sorted(path for path in Path(folder).glob(_PREFIX + 6 * "[0-9]") if (path / _META).is_file())


def read_info(folder: str | Path, job: Job) -> tuple[Path, SnapshotInfo]:
    """The latest snapshot below a folder and what it is of; raises JobError for none, or one of another job."""
    found = snapshots(folder)
    if not found:
        raise JobError(f"There is no snapshot in {folder}.", "Name the folder that an earlier run was given.")
    try:
        info = SnapshotInfo(**json.loads((found[-1] / _META).read_text(encoding="utf-8")))
        whole = len(_open_arrays(found[-1])["keys"]) == info.rows
    except (OSError, EOFError, ValueError, TypeError):
        whole = False
    if not whole:
        raise JobError(f"The snapshot {found[-1]} is damaged.", "Resume another one, or start anew in another folder.")
    if info.job_hash not in job.hashes:
        raise JobError(
            f"The snapshot in {folder} is of another job: its model, data or training settings differ.",
            "Resume it with the job file that it was made with, or start anew in another folder.",
        )
    return found[-1], info


def resumed_ranges(folder: str | Path | None, job: Job, samples: int | None) -> list[tuple[int, int]]:
    """The samples that the latest snapshot below a folder has seen; none without a folder. Raises JobError as
    `read_info` does, and where they are not all among the job's `samples`."""
    trained = [(a, b) for a, b in read_info(folder, job)[1].trained] if folder is not None else []
    last = max((end for _, end in trained), default=0)
    if samples is not None and last > samples:
        raise JobError(
            f"The snapshot in {folder} has been trained up to sample {last:,}, and the job has {samples:,}.",
            "Give the job more samples, or start anew in another folder.",
        )
    return trained


def check_folder(folder: str | Path | None, resume: str | Path | None) -> None:
    """Raises JobError for a folder whose snapshots would be lost: those of a run that is not resumed."""
    if folder is None or not snapshots(folder):
        return
    if resume is None or Path(folder).resolve() != Path(resume).resolve():
        raise JobError(
            f"There are snapshots of an earlier run in {folder}, which this one would remove.",
            f"Go on from them (resume {folder}), or name another folder.",
        )


def _open_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a snapshot, not in memory. Raises OSError or ValueError for one that is missing or cut short."""
    return {name: np.load(path / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}


def _number(path: Path) -> int:
    return int(path.name.removeprefix(_PREFIX))
