"""Snapshots of a running session: in memory at an interval, on disk where a folder is given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sizewright.errors import ReplicaDiedError, SizewrightError
from sizewright.training.account import Account
from sizewright.training.crew import Crew
from sizewright.training.fleet import Member, StoreProcess
from sizewright.training.optimizers import Floats
from sizewright.training.ps.snapshot_store import SnapshotStore
from sizewright.training.routing import Parts
from sizewright.training.snapshot_files import held, snapshots

_CONCURRENCY = 8
_SOON_S = 0.05


class Snapshots:
    """Owns the store. A server that is lost is restored from what was sent last; without a snapshot its rows begin
    anew and the dense weights come from a worker."""

    def __init__(
        self, crew: Crew, token: bytes, account: Account, *, interval_s: float | None, folder: str | None
    ) -> None:
        self.written = self.faults = 0
        """Snapshots on disk, and those that could not be taken or written."""
        self.fault = ""
        self._crew, self._token, self._account = crew, token, account
        self._interval_s, self.folder = interval_s, folder
        self._store: Any = None
        self.process: StoreProcess | None = None
        """The process of the store, which is watched like replicas."""
        self._address: Any = None
        self._stop = threading.Event()
        self.lock = threading.RLock()
        """Held for one snapshot from its beginning until it is on disk."""
        self._job = crew.job
        self._thread: threading.Thread | None = None

    @property
    def on(self) -> bool:
        """Whether there is anything to restore from."""
        return self._store is not None

    @property
    def wanted(self) -> bool:
        """Whether they are taken at an interval."""
        return self._interval_s is not None

    def open(self, dense: Floats) -> None:
        """Start the store, if there is none."""
        if self._store is None:
            fleet = self._crew.fleet
            options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": _CONCURRENCY}
            if not fleet.engine.local:  # where this process is, without which nothing goes on anyway
                here = fleet.ray.get_runtime_context().get_node_id()
                made = fleet.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
                options["scheduling_strategy"] = made(here, soft=False)
            ip = fleet.engine.ip()
            self._store = fleet.ray.remote(**options)(SnapshotStore).remote(self._job, dense, self._token, ip)
            self._address, pid, node = fleet.get(
                [self._store.address.remote(), self._store.pid.remote(), self._store.node.remote()]
            )
            node = "" if fleet.engine.local else node
            self.process = StoreProcess(self._store, node, pid)

    def load(self, folder: str) -> None:
        """Read a snapshot from disk into the store."""
        loaded = self._store.load.remote(folder)
        self._crew.fleet.get_all([loaded], lambda: [self._store.copied_bytes.remote()])

    def start(self, ready: Callable[[], bool]) -> None:
        """Take one at each interval while `ready`."""
        if self._interval_s is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True, name="snapshots")
            self._thread.start()

    def take(self, *, polite: bool = True) -> None:
        """Send what has changed to the store. Raises when a server or the store has gone."""
        with self.lock, self._crew.servers.handover:
            self._mend()
            self._account.settle()  # what is lost is not lost once more by a run that goes on from here
            servers, routing = self._crew.roster.servers, self._crew.routing
            taken = [m.actor.snapshot.remote(self._address, routing, polite=polite) for m in servers]
            self._crew.fleet.get_all(taken, lambda: [m.actor.copied_bytes.remote() for m in servers])

    def take_whole(self, folder: str, *, resume: bool) -> None:
        """One of a single moment, from which on workers wait unless they `resume`, to disk."""
        with self.lock:
            self.take()  # most rows while training goes on
            try:
                self._crew.pause()
                self.take(polite=False)
            finally:
                if resume:
                    self._crew.resume()
            with held(None if folder == self.folder else folder):  # the session holds its own
                self.save(folder)

    def take_last(self) -> None:
        """Of the end, to the folder; training does not go on."""
        assert self.folder is not None
        try:
            self.take_whole(self.folder, resume=False)
        except SizewrightError as error:
            self._note(str(error))

    def save(self, folder: str) -> None:
        """Write what the store has to disk."""
        saved = self._store.save.remote(folder, self._account.updates_lost, self._account.samples_repeated)
        self._crew.fleet.get_all([saved], lambda: [self._store.copied_bytes.remote()])
        self.written += 1

    def refuse(self, servers: Sequence[Member]) -> None:
        """Take nothing more from servers that others replace."""
        if self._store is not None:
            with self.lock:
                self._mend()
            self._crew.fleet.get([self._store.refuse.remote([member.index + 1 for member in servers])])

    def restore(self, member: Member, parts: Parts, dense: slice, version: int) -> None:
        """See `ps_team.Restore`."""
        fleet = self._crew.fleet
        if self._store is not None:
            with self.lock:
                self._mend()
            restored = self._store.restore.remote(member.address, parts, dense, version)
            fleet.get_all([restored], lambda: [self._store.copied_bytes.remote()])
            return
        weights = self._from_a_worker()
        fleet.get([member.actor.begin_with.remote(version, dense, weights[dense])])

    def stop(self) -> None:
        """No further snapshots; the store ends."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        if self._store is not None:
            self._crew.fleet.engine.kill(self._store)
            self._store = self.process = None

    def _mend(self) -> None:
        """A new store for one that has died, with what is on disk."""
        try:
            self._crew.fleet.get([self._store.pid.remote()])
            return
        except ReplicaDiedError:
            self._store = self.process = None
        self.open(self._from_a_worker())
        self._note("The store of snapshots ended and was started again.")
        if self.folder is not None and snapshots(self.folder):
            self.load(self.folder)

    def _from_a_worker(self) -> Floats:
        for worker in self._crew.roster.workers:
            try:
                (weights,) = self._crew.fleet.get([worker.actor.dense_weights.remote()])
            except SizewrightError:
                continue
            if weights is not None:
                return np.asarray(weights, np.float32)
        assert self._crew.routing is not None
        return np.zeros(self._crew.routing.edges[-1], np.float32)

    def _run(self, ready: Callable[[], bool]) -> None:
        assert self._interval_s is not None
        wait_s = 0.0  # the first is taken at once
        while not self._stop.wait(wait_s):
            if not ready():
                wait_s = _SOON_S
                continue
            wait_s = self._interval_s
            try:
                with self.lock:
                    self.take()
                    if self.folder is not None:
                        self._write()
            except SizewrightError:
                continue  # a server has gone: recovery looks after it, and the next snapshot is whole
            except Exception as error:  # else nobody would be told that there are no more
                self._note(f"A snapshot failed: {type(error).__name__}: {error}.")

    def _write(self) -> None:
        assert self.folder is not None
        try:
            self.save(self.folder)
        except SizewrightError as error:
            self._note(str(error))

    def _note(self, fault: str) -> None:
        self.faults, self.fault = self.faults + 1, fault
