"""Runs in the session's process. Takes snapshots in memory at an interval, and on disk if a folder is given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sizewright.errors import ReplicaDiedError, SizewrightError
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import Parts
from sizewright.training.ps.snapshot_files import lock_folder, snapshots
from sizewright.training.ps.snapshot_store import SnapshotStore
from sizewright.training.ray.actor_pool import ReplicaHandle, StoreProcess
from sizewright.training.replicas.account import Account
from sizewright.training.replicas.replica_group import ReplicaGroup

_CONCURRENCY = 8
_RETRY_S = 0.05


class Snapshots:
    """Takes snapshots and restores lost servers from them; owns the process of the store.

    A lost server is restored from the last snapshot. Without one its rows are new, and its dense weights come from a
    worker.
    """

    def __init__(
        self,
        replica_group: ReplicaGroup,
        token: bytes,
        account: Account,
        *,
        interval_s: float | None,
        folder: str | None,
    ) -> None:
        self.written = 0
        """The number of snapshots on disk."""
        self.faults = 0
        """The number of snapshots that could not be taken or written."""
        self.fault = ""
        """The last of these faults."""
        self.folder = folder
        self.process: StoreProcess | None = None
        """The process of the store, which is watched like replicas."""
        self._replica_group = replica_group
        self._token = token
        self._account = account
        self._interval_s = interval_s
        self._store: Any = None
        self._address: Any = None
        self._stop = threading.Event()
        self._on_disk: dict[Path, Path] = {}
        """The last snapshot in each folder that this session has loaded or written."""
        self.complete = False
        """True once the store has had a snapshot of all servers."""
        self.lock = threading.RLock()
        """Held for one snapshot from its beginning until it is on disk."""
        self._job = replica_group.job
        self._thread: threading.Thread | None = None

    @property
    def on(self) -> bool:
        """Return whether the store runs, so that servers can be restored from it."""
        return self._store is not None

    @property
    def at_interval(self) -> bool:
        """Return whether snapshots are taken at an interval."""
        return self._interval_s is not None

    def open(self, dense: Floats) -> None:
        """Start the store, unless it runs already."""
        if self._store is not None:
            return
        pool = self._replica_group.pool
        options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": _CONCURRENCY}
        if not pool.engine.local:  # on the node of this process, without which the session cannot go on anyway
            node_id = pool.ray.get_runtime_context().get_node_id()
            affinity = pool.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            options["scheduling_strategy"] = affinity(node_id, soft=False)
        ip = pool.engine.ip()
        store = pool.ray.remote(**options)(SnapshotStore).remote(self._job, dense, self._token, ip)
        address, pid, node = pool.get([store.address.remote(), store.pid.remote(), store.node.remote()])
        self._store, self._address = store, address
        self.process = StoreProcess(store, "" if pool.engine.local else node, pid)

    def load(self, folder: str) -> None:
        """Read a snapshot from disk into the store."""
        loaded = self._store.load.remote(folder)
        self._replica_group.pool.get_all([loaded], lambda: [self._store.copied_bytes.remote()])
        self._note_on_disk(folder)
        self.complete = True

    def start(self, ready: Callable[[], bool]) -> None:
        """Take a snapshot at each interval while `ready` returns True."""
        if self._interval_s is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True, name="snapshots")
            self._thread.start()

    def take(self, *, throttled: bool = True) -> None:
        """Send the changed rows to the store. Raise SizewrightError if a server or the store has died."""
        with self.lock, self._replica_group.servers.handover:
            self._restart_dead_store()
            self._account.count_losses()  # so that a run that resumes this snapshot does not count these losses again
            servers, routing = self._replica_group.membership.servers, self._replica_group.routing
            taken = [m.actor.snapshot.remote(self._address, routing, throttled=throttled) for m in servers]
            self._replica_group.pool.get_all(taken, lambda: [m.actor.copied_bytes.remote() for m in servers])
            self.complete = True

    def take_consistent(self, folder: str, *, resume: bool) -> None:
        """Write a snapshot of a single moment to disk; workers stay paused afterwards unless they `resume`."""
        with self.lock:
            self.take()  # most rows while training goes on
            try:
                self._replica_group.pause()
                self.take(throttled=False)
            finally:
                if resume:
                    self._replica_group.resume()
            with lock_folder(None if folder == self.folder else folder):  # the session holds its own
                self.save(folder)

    def take_last(self) -> None:
        """Write a snapshot of the end of the session; training does not go on."""
        assert self.folder is not None
        try:
            self.take_consistent(self.folder, resume=False)
        except SizewrightError as error:
            self._record_fault(str(error))

    def save(self, folder: str) -> None:
        """Write the content of the store to disk."""
        counts = self._account.updates_lost, self._account.samples_repeated
        saved = self._store.save.remote(folder, *counts, self._on_disk.get(Path(folder).resolve()))
        self._replica_group.pool.get_all([saved], lambda: [self._store.copied_bytes.remote()])
        self._note_on_disk(folder)
        self.written += 1

    def refuse(self, servers: Sequence[ReplicaHandle]) -> None:
        """Refuse snapshots from servers that are being replaced."""
        if self._store is not None:
            with self.lock:
                self._restart_dead_store()
            self._replica_group.pool.get([self._store.refuse.remote([member.index + 1 for member in servers])])

    def fill_from_snapshot(self, member: ReplicaHandle, parts: Parts, dense: slice, version: int) -> None:
        """Send a server its parts and its dense slice from the last snapshot; see `server_group.FillServer`.

        Without a store its rows are new, and its dense weights come from a worker.
        """
        pool = self._replica_group.pool
        if self._store is not None:
            with self.lock:
                self._restart_dead_store()
            restored = self._store.restore.remote(member.address, parts, dense, version)
            pool.get_all([restored], lambda: [self._store.copied_bytes.remote()])
            return
        weights = self._from_a_worker()
        pool.get([member.actor.start_with_dense.remote(version, dense, weights[dense])])

    def stop(self) -> None:
        """Take no further snapshots, and end the store."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        if self._store is not None:
            self._replica_group.pool.engine.kill(self._store)
            self._store = self.process = None

    def _restart_dead_store(self) -> None:
        """Start a new store if the old one has died, with the last snapshot on disk."""
        try:
            self._replica_group.pool.get([self._store.pid.remote()])
            return
        except ReplicaDiedError:
            self._store = self.process = None
            self.complete = False
        self.open(self._from_a_worker())
        self._record_fault("The process that keeps snapshots ended and was started again.")
        if self.folder is not None and (last := self._on_disk.get(Path(self.folder).resolve())):
            self.load(str(last))

    def _note_on_disk(self, folder: str) -> None:
        latest = snapshots(folder)[-1].resolve()
        self._on_disk[latest.parent] = latest

    def _from_a_worker(self) -> Floats:
        for worker in self._replica_group.membership.workers:
            try:
                (weights,) = self._replica_group.pool.get([worker.actor.dense_weights.remote()])
            except SizewrightError:
                continue
            if weights is not None:
                return np.asarray(weights, np.float32)
        assert self._replica_group.routing is not None
        return np.zeros(self._replica_group.routing.edges[-1], np.float32)

    def _run(self, ready: Callable[[], bool]) -> None:
        assert self._interval_s is not None
        wait_s = 0.0  # the first is taken at once
        failed = False
        while not self._stop.wait(wait_s):
            if not ready():
                wait_s = _RETRY_S
                continue
            wait_s = self._interval_s
            try:
                with self.lock:
                    self.take()
                    if self.folder is not None:
                        try:
                            self.save(self.folder)
                        except SizewrightError as error:
                            self._record_fault(str(error))
                failed = False
            except SizewrightError as error:
                if failed:  # the first time a server may have died: recovery replaces it before the next snapshot
                    self._record_fault(f"A snapshot failed: {error}")
                failed = True
            except Exception as error:  # without this, snapshots would stop and nobody would know
                self._record_fault(f"A snapshot failed: {type(error).__name__}: {error}.")

    def _record_fault(self, fault: str) -> None:
        self.faults += 1
        self.fault = fault
