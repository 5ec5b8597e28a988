"""Snapshots of a running session: in memory at an interval, on disk where a folder is given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from sizewright.errors import ReplicaDiedError, SizewrightError
from sizewright.training.crew import Crew
from sizewright.training.fleet import Member
from sizewright.training.keeper import Keeper
from sizewright.training.optimizers import Floats
from sizewright.training.routing import Owners
from sizewright.training.snapshot_files import SnapshotInfo, held, snapshots

_CONCURRENCY = 8
_SOON_S = 0.05


class Snapshots:
    """Owns the keeper. A server that is lost is restored from what was sent last; without a snapshot its rows begin
    anew and the dense weights come from a worker."""

    def __init__(self, crew: Crew, token: bytes, *, interval_s: float | None, folder: str | None) -> None:
        self.written = self.faults = 0
        """Snapshots on disk, and those that could not be taken or written."""
        self.fault = ""
        self.reports = self._saved = 0
        """Batches that are surely in the last snapshot, and in the last one on disk."""
        self._crew, self._token = crew, token
        self._interval_s, self.folder = interval_s, folder
        self._keeper: Any = None
        self._address: Any = None
        self._stop = threading.Event()
        self.lock = threading.RLock()
        """Held for one snapshot from its beginning until it is on disk."""
        self._job = crew.job
        self._thread: threading.Thread | None = None

    @property
    def rolled_back(self) -> int:
        """Updates lost by moves that were called off."""
        return self._crew.servers.updates_lost

    @property
    def on(self) -> bool:
        """Whether there is anything to restore from."""
        return self._keeper is not None

    @property
    def wanted(self) -> bool:
        """Whether they are taken at an interval."""
        return self._interval_s is not None

    def open(self, dense: Floats) -> None:
        """Start the keeper, if there is none."""
        if self._keeper is None:
            fleet = self._crew.fleet
            options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": _CONCURRENCY}
            if not fleet.engine.local:  # where this process is, without which nothing goes on anyway
                here = fleet.ray.get_runtime_context().get_node_id()
                made = fleet.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
                options["scheduling_strategy"] = made(here, soft=False)
            ip = fleet.engine.ip()
            self._keeper = fleet.ray.remote(**options)(Keeper).remote(self._job, dense, self._token, ip)
            (self._address,) = fleet.get([self._keeper.address.remote()])

    def load(self, folder: str) -> SnapshotInfo:
        """Read a snapshot from disk into the keeper."""
        loaded = self._keeper.load.remote(folder)
        (info,) = self._crew.fleet.get_all([loaded], lambda: [self._keeper.copied_bytes.remote()])
        return SnapshotInfo(*info)

    def start(self, ready: Callable[[], bool]) -> None:
        """Take one at each interval while `ready`."""
        if self._interval_s is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True, name="snapshots")
            self._thread.start()

    def take(self, *, polite: bool = True) -> None:
        """Send what has changed to the keeper. Raises when a server or the keeper has gone."""
        with self.lock, self._crew.servers.handover:
            self._mend()
            reports = self._crew.leases.reports
            servers, routing = self._crew.roster.servers, self._crew.routing
            taken = [m.actor.snapshot.remote(self._address, routing, polite=polite) for m in servers]
            self._crew.fleet.get_all(taken, lambda: [m.actor.copied_bytes.remote() for m in servers])
            self.reports = reports

    def take_whole(self, folder: str, *, resume: bool) -> None:
        """One of a single moment, from which on workers wait unless they `resume`, to disk."""
        with self.lock:
            self.take()  # most rows while training goes on
            try:
                self._crew.pause()
                self.take(polite=False)
                with self._crew.leases.lock:
                    trained = self._crew.leases.book.trained_ranges()
            finally:
                if resume:
                    self._crew.resume()
            with held(None if folder == self.folder else folder):  # the session holds its own
                self.save(folder, trained)

    def take_last(self) -> None:
        """Of the end, to the folder; training does not go on."""
        assert self.folder is not None
        try:
            self.take_whole(self.folder, resume=False)
        except SizewrightError as error:
            self._note(str(error))

    def save(self, folder: str, trained: list[tuple[int, int]]) -> None:
        """Write what the keeper has to disk, as of these samples."""
        saved = self._keeper.save.remote(folder, trained)
        self._crew.fleet.get_all([saved], lambda: [self._keeper.copied_bytes.remote()])
        self.written += 1

    def restore(self, member: Member, partitions: Owners, dense: slice, version: int) -> None:
        """See `ps_team.Restore`."""
        fleet = self._crew.fleet
        if self._keeper is not None:
            with self.lock:
                self._mend()
            restored = self._keeper.restore.remote(member.address, partitions, dense, version)
            fleet.get_all([restored], lambda: [self._keeper.copied_bytes.remote()])
            return
        weights = self._from_a_worker()
        fleet.get([member.actor.begin_with.remote(version, dense, weights[dense])])

    def stop(self) -> None:
        """No further snapshots; the keeper ends."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)
        if self._keeper is not None:
            self._crew.fleet.ray.kill(self._keeper, no_restart=True)
            self._keeper = None

    def _mend(self) -> None:
        """A new keeper for one that has died, with what is on disk."""
        try:
            self._crew.fleet.get([self._keeper.pid.remote()])
            return
        except ReplicaDiedError:
            self._keeper = None
        self.open(self._from_a_worker())
        self._note("The keeper of snapshots ended and was started again.")
        self.reports = 0
        if self.folder is not None and snapshots(self.folder):
            self.load(self.folder)
            self.reports = self._saved

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
            with self._crew.leases.lock:
                trained = self._crew.leases.book.trained_ranges()
            try:
                with self.lock:
                    self.take()
                    if self.folder is not None:
                        self._write(trained)
            except SizewrightError:
                continue  # a server has gone: recovery looks after it, and the next snapshot is whole
            except Exception as error:  # else nobody would be told that there are no more
                self._note(f"A snapshot failed: {type(error).__name__}: {error}.")

    def _write(self, trained: list[tuple[int, int]]) -> None:
        assert self.folder is not None
        try:
            reports = self.reports
            self.save(self.folder, trained)
            self._saved = reports
        except SizewrightError as error:
            self._note(str(error))

    def _note(self, fault: str) -> None:
        self.faults, self.fault = self.faults + 1, fault
