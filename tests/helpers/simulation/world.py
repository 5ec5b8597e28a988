"""One schedule: a job trains while replicas change, crash, hang and lose connections, and its result is checked.

Every sample has its own row, which counts how often a server applied it, and a row that it shares with others,
which counts theirs. The counts of the servers must match the outcome of the session: each sample is trained once,
except those reported as lost in parts of the keys. Training must end.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from sizewright.datasets.clicks.batch import Batch
from sizewright.errors import SizewrightError
from sizewright.spec import Allocation, Job, Model, Optimizer, Tables
from sizewright.testing.audit import AuditProgram, audit_job
from sizewright.training import session
from sizewright.training.leases import batch_source
from sizewright.training.ps import actor as ps_actor
from sizewright.training.ps import migration, snapshot_files, snapshot_store, snapshots
from sizewright.training.ps.applied import AppliedGroup
from sizewright.training.ps.embedding import make_keys
from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.optimizers import Floats, UpdateRule, make_rule
from sizewright.training.ps.routing import PARTITIONS, PARTS, Counts, partition_of
from sizewright.training.ray import actor_pool as pool
from sizewright.training.replicas import recovery, replica
from sizewright.training.replicas.account import Loss
from sizewright.training.session import Session
from sizewright.training.transport import links, listeners, peers, wire
from sizewright.training.worker import actor as worker_actor
from sizewright.training.worker import network_step, ps_client, worker
from tests.helpers.losses import dense_counts, updates_lost
from tests.helpers.simulation.actors import SimEngine, SimMachine, SimRay
from tests.helpers.simulation.network import Network, SimListener
from tests.helpers.simulation.scheduler import Process, Scheduler
from tests.helpers.simulation.threads import SimThreading, SimTime

BATCH, SHARED, DENSE, HANG_S, LIMIT_S = 8, 3, 5, 2.0, 900.0
_LATE_S, _SOON_S = 4 * HANG_S, 0.5 * HANG_S
"""How long faults may delay a snapshot, and the detection of a death, in seconds."""
_PATIENCE_S = 120.0
"""Time until a replica that hangs while loading is detected; heartbeats do not cover loading."""
_IMPORTED = (batch_source, pool, links, peers, ps_client, recovery, worker)
"""Modules that replicas import later; they must exist before the simulated modules replace the real ones."""
BATCH_SIZES = (4, BATCH, 12)
FAULTS = ("kill", "kill", "hang", "pause", "cut", "cut", "cut", "store", "driver", "disk", "engine")
CHANGES = ("scale", "scale", "replace", "rebalance", "checkpoint")


class Applications(UpdateRule):
    """An update rule under which rows count their updates, regardless of the gradient."""

    def state_width(self, width: int) -> int:
        return 0

    def update(self, weights: Floats, state: Floats, grads: Floats) -> None:
        weights += 1


class Counting:
    """Replaces the network: a row's gradient is -1, a dense weight's is minus the number of samples."""

    def __init__(self, model: Model, network: object, loss: object, device: str) -> None:
        self.weights: Floats = np.zeros(DENSE, np.float32)
        self._grads: Floats = np.zeros(DENSE, np.float32)
        self._world = World.present

    def keys(self, batch: Any) -> list[Keys]:
        return [make_keys(batch.ids[:, [table]], np.array([table])) for table in range(2)]

    def gradients(self, batch: Any, inverses: Any, rows: Sequence[Floats]) -> tuple[list[Floats], float]:
        self._world.scheduler.wait(self._world.scheduler.delay(0.02))
        self._grads -= len(batch.labels)
        counts = [np.bincount(inverse, minlength=len(each)) for inverse, each in zip(inverses, rows, strict=True)]
        grads = [np.repeat(-each[:, None], of.shape[1], 1) for each, of in zip(counts, rows, strict=True)]
        return [each.astype(np.float32) for each in grads], 0.0

    def take_grads(self) -> Floats:
        grads = self._grads.copy()
        self._grads[:] = 0
        return grads

    def put_weights(self) -> None:
        pass


class _Samples:
    """Samples in which number i has row i of the first table and one of few rows of the second."""

    def read(self, start: int, count: int) -> Batch:
        ids = np.arange(start, start + count, dtype=np.int64)
        return Batch(np.zeros(count, np.float32), np.zeros((count, 0), np.float32), np.stack([ids, ids % SHARED], 1))


class _Pool:
    """Stands for a ThreadPoolExecutor of one thread."""

    def __init__(self, max_workers: int) -> None:
        pass

    def submit(self, work: Any, *args: Any) -> Any:
        scheduler = World.present.scheduler
        assert scheduler.current is not None
        return _Future(scheduler.spawn(scheduler.current.process, lambda: work(*args), "train"))


@dataclass(eq=False)
class _Future:
    task: Any

    def done(self) -> bool:
        return bool(self.task.done)

    def result(self) -> Floats:
        return np.zeros(DENSE, np.float32)


def _wait(futures: list[_Future], timeout: float) -> Any:
    scheduler = World.present.scheduler
    deadline = scheduler.now + timeout
    while not all(each.done() for each in futures) and scheduler.now < deadline:
        scheduler.wait(0.005)
    return mock.Mock(not_done=[each for each in futures if not each.done()])


class _Limits:
    """Stands for the ReplicaLimits of an unlimited replica."""

    limited_by, period_ms = "none", None

    def __init__(self, *_: object) -> None:
        pass

    def usage(self) -> Any:
        from sizewright.training.host.limits import ReplicaUsage

        return ReplicaUsage(0.0, 0.0, 0.0, 0.0, 0)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class _Os:
    """Stands for `os`, which a replica asks for its process id."""

    def getpid(self) -> int:
        current = World.present.scheduler.current
        assert current is not None
        return current.process.number


@dataclass
class Report:
    """The result of a schedule: violations of the guarantees (ideally none), and a log of events in order."""

    seed: int
    violations: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    losses: int = 0
    digest: int = 0

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}", *self.log, *(f"VIOLATION: {each}" for each in self.violations)])


class World:
    """The simulated world of one schedule, determined by its seed."""

    present: World

    def __init__(self, seed: int) -> None:
        self.report = Report(seed)
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler)
        rng = self.rng
        self.sync = rng.random() < 0.3
        training = {"sync": "sync"} if self.sync else {"max_staleness": rng.choice([None, None, 0, 2])}
        self.samples = rng.randint(4, 40) * BATCH + rng.randint(0, BATCH - 1)
        job = audit_job(self.samples, batch_size=BATCH)
        changed = job.training.model_copy(update={**training, "dense_sync_steps": rng.choice([1, 1, 1, 3])})
        tables = Tables(count=2, rows=(self.samples, SHARED), dim=(1, 2))  # so a store for each
        model = job.model.model_copy(update={"tables": tables})
        self.job: Job = job.model_copy(update={"training": changed, "model": model})
        self.snapshot_s = rng.choice([None, 0.1, 0.3, 1.0])
        self.rows_at_once = rng.choice([4, 8, 32])
        self.folder: Path | None = None
        self.ray: SimRay
        self.session: Session | None = None
        self.driver: Process
        self.disk_full_until = 0.0
        self.finished = False
        self.saved: list[tuple[int, list[Loss]]] = []
        self.inherited: list[Loss] = []
        self.dense_of_a_worker = False
        self.killed: list[tuple[float, str]] = []
        self.disturbed = False
        self.last_snapshot_s = 0.0
        self.late_s = _LATE_S

    def log(self, what: str) -> None:
        self.report.log.append(f"{self.scheduler.now:9.4f} {what}")

    def run(self) -> Report:
        """Run the whole schedule."""
        World.present = self
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as root:
            if self.snapshot_s is not None and self.rng.random() < 0.7:
                self.folder = Path(root) / "kept"
            self._root = Path(root)
            with self._installed():
                self._start_driver(resume=False)
                self.scheduler.spawn(self.scheduler.process("chaos"), self._chaos)
                if not self.scheduler.run(lambda: self.finished, LIMIT_S):
                    self.violate("training does not end")
                for task in self.scheduler.tasks:
                    if task.error is not None and not isinstance(task.error, (SizewrightError, OSError)):
                        self.violate(f"{task.name} of {task.process}: {type(task.error).__name__}: {task.error}")
                self.scheduler.end()
        self.report.digest = self.scheduler.digest
        return self.report

    def violate(self, what: str) -> None:
        self.report.violations.append(what)
        self.log(f"! {what}")

    def _start_driver(self, *, resume: bool) -> None:
        self.driver = self.scheduler.process("driver")
        self._checkpoint = self._root / f"checkpoint-{self.driver.number}"
        self.ray = SimRay(self.scheduler, self.driver)
        self.scheduler.spawn(self.driver, lambda: self._drive(resume=resume), "driver")

    def _drive(self, *, resume: bool) -> None:
        """Run the program of the user."""
        resumes = resume and self.folder is not None and bool(snapshot_files.snapshots(self.folder))
        self.inherited = self._losses_in_snapshot() if resumes else []
        self.saved, self.killed, self.last_snapshot_s = [], [], self.scheduler.now
        self.late_s = _LATE_S
        if not resumes and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.session = running = Session(
                self.job, samples=self.samples, snapshot_s=self.snapshot_s, folder=self.folder,
                resume=self.folder if resumes else None, recover=True, hang_s=HANG_S, timeout_s=_PATIENCE_S,
                program=AuditProgram(),
            )  # fmt: skip
            self._note_saves(running)
            self._watch_losses(running)
            running.scale(self._allocation())
            self.log(f"trains{' on' if resumes else ''}: {running.allocation and running.allocation.describe()}")
            while not running.wait(self.scheduler.delay(0.1)):
                self._change(running)
            self._check(running)
            running.stop()
        except SizewrightError as error:
            self.log(f"the session ended: {error}")
            with contextlib.suppress(SizewrightError):
                if self.session is not None:
                    self.session.stop()
            self.session = None
            self._start_driver(resume=True)
            return
        self.finished = True

    def _allocation(self) -> Allocation:
        return Allocation.of(self.rng.randint(1, 3), self.rng.randint(1, 3), 0.3, 0.2, self.rng.choice(BATCH_SIZES))

    def _change(self, running: Session) -> None:
        what = self.rng.choice(CHANGES)
        try:
            if what == "scale":
                running.scale(self._allocation())
            elif what == "replace":
                running.replace(self.rng.choice(list(running.pids()) or ["none"]))
            elif what == "rebalance":
                running.rebalance()
            else:
                running.checkpoint(self._checkpoint)
                self._check_checkpoint(running)
            self.log(f"{what} done")
        except SizewrightError as error:
            self.log(f"{what}: {error}")

    def _chaos(self) -> None:
        """Inject a few faults, so few that training can end."""
        for _ in range(self.rng.choice([0, 1, 1, 2, 3, 5])):
            self.scheduler.wait(self.scheduler.delay(0.2))
            self._break(self.rng.choice(FAULTS))

    def _break(self, what: str) -> None:
        self.disturbed = True
        running, rng = self.session, self.rng
        alive = [actor for actor in self.ray.actors if actor.process.alive]
        replicas = [actor for actor in alive if "SnapshotStore" not in actor.process.name]
        if what == "cut" and self.network.links:
            busy = [link for link in self.network.links if any(end.awaits(self.scheduler.now) for end in link)]
            link = rng.choice(busy if busy and rng.random() < 0.7 else self.network.links)
            self.log(f"cut {link[0].process} - {link[1].process}")
            self.network.cut(link)
        elif what in ("kill", "hang", "pause") and replicas:
            victim = rng.choice(replicas).process
            self.log(f"{what} {victim}")
            if what == "kill":
                if running is not None and not running._busy and running._replica_group is not None:
                    mine = [
                        each.name for each in running._replica_group.membership.members if each.actor.process is victim
                    ]
                    self.killed += [(self.scheduler.now, name) for name in mine]
                self.scheduler.kill(victim)
                return
            self.scheduler.stop(victim)
            if what == "hang" and running is not None and not self._is_loaded(running, victim):
                self.late_s += _PATIENCE_S
            if what == "pause":
                self.scheduler.wait(rng.random() * 1.5 * HANG_S)
                self.scheduler.go_on(victim)
        elif what == "store":
            for actor in alive:
                if "SnapshotStore" in actor.process.name:
                    self.log("kill the store")
                    self.scheduler.kill(actor.process)
        elif what == "disk":
            self.log("the disk is full")
            self.disk_full_until = self.scheduler.now + rng.random()
        elif what == "driver" and running is not None:
            self.log("kill the driver")
            self.session = None
            self.scheduler.kill(self.driver)
            self.scheduler.wait(0.5)
            self._start_driver(resume=True)
        elif what == "engine":
            self.log("Ray has gone")
            self.ray.gone_s = self.scheduler.now

    @staticmethod
    def _is_loaded(running: Session, process: Process) -> bool:
        return running._replica_group is not None and any(
            each.actor.process is process for each in running._replica_group.pool.loaded
        )

    def _note_saves(self, running: Session) -> None:
        """Note the losses before each snapshot goes to disk; a run that resumes from it has lost the same."""
        save = running._snapshots.save

        def noted(folder: str) -> None:
            self.saved.append((running._account.updates_lost, [*self.inherited, *running._account.losses]))
            save(folder)

        running._snapshots.save = noted  # type: ignore[method-assign]

    def _watch_losses(self, running: Session) -> None:
        """Check that a server loses only samples since its last snapshot."""
        counted, weights = running._account._count, running._snapshots._from_a_worker
        take = running._snapshots.take

        def taken(**options: Any) -> None:
            take(**options)
            self.last_snapshot_s = self.scheduler.now

        def watched(server: str, missing: AppliedGroup) -> list[Loss]:
            losses = counted(server, missing)
            # Without Ray nobody takes snapshots, and a loss of before may be counted any time later.
            age_s = min(self.scheduler.now, self.ray.gone_s) - self.last_snapshot_s
            if losses and self.snapshot_s is not None and age_s > self.snapshot_s + self.late_s:
                self.violate(f"the last snapshot was {age_s:.1f} s old, at an interval of {self.snapshot_s} s")
            snapshot_groups = self._in_the_store(running)
            for loss in losses:
                snapshot_samples = [samples for parts, samples in snapshot_groups if np.isin(parts, loss.parts).any()]
                if twice := sum(samples.count(*each) for samples in snapshot_samples for each in loss.samples):
                    self.violate(f"{twice} samples are lost at {server} that a snapshot holds")
            return losses

        def noted() -> Floats:
            self.dense_of_a_worker = True  # it is unknown which samples they contain
            return weights()

        running._account._count = watched  # type: ignore[method-assign]
        running._snapshots.take = taken  # type: ignore[method-assign]
        running._snapshots._from_a_worker = noted  # type: ignore[method-assign]

    def _in_the_store(self, running: Session) -> list[AppliedGroup]:
        for actor in self.ray.actors:
            if actor.process.alive and isinstance(actor.instance, snapshot_store.SnapshotStore):
                return actor.instance._applied.groups()
        return []

    def _losses_in_snapshot(self) -> list[Loss]:
        assert self.folder is not None
        info, _ = snapshot_files.read_snapshot(self.folder, self.job)
        known = [losses for lost, losses in self.saved if lost == info.updates_lost]
        return known[-1] if known else self.inherited

    def _check_checkpoint(self, running: Session) -> None:
        """Check that a checkpoint is of one moment: each row has the updates of the samples that it says it holds.

        Only an exchange that a fault interrupted may be in some of the parts and not in others.
        """
        info, arrays = snapshot_files.read_snapshot(self._checkpoint, self.job)
        if info.partly_applied and not self.disturbed:
            self.violate(f"a checkpoint has samples {info.partly_applied} in some of its parts only")
        held: dict[int, int] = {}
        for width in (1, 2):
            weights = np.round(arrays[f"weights-{width}"][:, 0]).astype(int).tolist()
            held |= zip(arrays[f"keys-{width}"].tolist(), weights, strict=True)
        expected = self._expected([*self.inherited, *running._account.losses], info.applied)
        counted = np.array([held.get(key, 0) for key in self._keys()], np.int64)
        if self.sync:
            expected, counted = expected[: self.samples], counted[: self.samples]
        if (counted != expected).any():
            self.violate(f"{np.count_nonzero(counted != expected)} rows of a checkpoint differ from its record")

    def _check(self, running: Session) -> None:
        """Check row by row that the servers' counts match the outcome of the session."""
        for _ in range(20):  # servers may still be restarting
            with contextlib.suppress(SizewrightError):
                running.checkpoint(self._checkpoint)
                break
            self.scheduler.wait(0.5)
        asked_s = self.scheduler.now  # nothing is replaced while the outcome waits for a server that hangs
        outcome, account = running.outcome(), running._account
        losses = [*self.inherited, *account.losses]
        expected, counted = self._expected(losses), self._counts(running)
        if self.sync:  # a shared row is updated with the mean of a round
            expected, counted = expected[: self.samples], counted[: self.samples]
        if outcome.samples != self.samples or outcome.status != "finished":
            self.violate(f"the outcome says {outcome.samples} of {self.samples} samples, {outcome.status}")
        if outcome.samples_repeated:
            self.violate(f"{outcome.samples_repeated} samples are reported as repeated")
        if (counted != expected).any():
            wrong = np.flatnonzero(counted != expected)
            examples = ", ".join(f"{i}: {counted[i]} for {expected[i]}" for i in wrong[:8])
            self.violate(f"{len(wrong)} rows differ from the outcome: {examples}")
        replaced = [failure.replica for failure in outcome.failures if "cut" not in failure.cause]
        for at_s, name in self.killed if self.ray.alive else ():  # without Ray no replica can be replaced
            if name not in replaced and at_s < asked_s - _SOON_S:
                self.violate(f"the death of {name}, killed at {at_s:.4f}, is not reported")
        fewest, largest = updates_lost(losses, BATCH_SIZES)
        if not fewest <= outcome.updates_lost <= largest:
            self.violate(f"{outcome.updates_lost} updates are reported as lost, expected {fewest} to {largest}")
        if not self.sync:
            self._check_dense(running, losses)
        self.report.losses = len(losses)
        self.log(f"finished; {outcome.updates_lost} updates lost")

    def _check_dense(self, running: Session, losses: list[Loss]) -> None:
        """Check that each dense weight has seen all samples but lost ones, or more if it was taken from a worker."""
        counted, expected = self._dense(running), dense_counts(self.samples, losses, DENSE)
        wrong = counted < expected if self.dense_of_a_worker else counted != expected
        if wrong.any():
            self.violate(f"dense weights have seen {counted.tolist()} samples for {expected.tolist()}")

    def _dense(self, running: Session) -> Floats:
        replica_group = running._replica_group
        assert replica_group is not None
        assert replica_group.routing is not None
        slices = [member.actor.instance._ps.dense for member in replica_group.membership.servers]
        return np.concatenate([each.copy() for each in sorted(slices, key=lambda each: each.start)])

    def _expected(self, losses: list[Loss], applied: list[AppliedGroup] | None = None) -> Counts:
        """Return the expected updates of each row: those of the samples, then the shared ones.

        `applied` are the samples that have been applied to each part; by default all.
        """
        samples = np.arange(self.samples)
        partitions, shared = partition_of(samples), partition_of(self._shared_keys())
        has = np.ones((self.samples, 2), bool)
        if applied is not None:
            of_part = np.zeros((PARTS, self.samples), bool)
            for group in applied:
                for start, end in group.samples:
                    of_part[group.parts, start:end] = True
            has = np.stack([of_part[partitions, samples], of_part[shared[samples % SHARED], samples]], 1)
        for loss in losses:
            lost_partitions = np.zeros(PARTITIONS, bool)
            lost_partitions[loss.parts[loss.parts < PARTITIONS]] = True
            for start, end in loss.samples:
                has[start:end, 0] &= ~lost_partitions[partitions[start:end]]
                has[start:end, 1] &= ~lost_partitions[shared[samples[start:end] % SHARED]]
        together = np.bincount(samples % SHARED, weights=has[:, 1], minlength=SHARED)
        return np.concatenate([has[:, 0], together]).astype(np.int64)

    def _shared_keys(self) -> Keys:
        return make_keys(np.stack([np.zeros(SHARED, np.int64), np.arange(SHARED)], 1))[1::2]

    def _counts(self, running: Session) -> Counts:
        """Return the updates of each row, counted at the server that holds it."""
        replica_group = running._replica_group
        assert replica_group is not None
        assert replica_group.routing is not None
        rows: dict[int, int] = {}
        for member in replica_group.membership.servers:
            position = replica_group.routing.position(member.index + 1)
            for store in member.actor.instance._ps.stores:
                slots, keys = store.slots(0, store.top)
                mine = replica_group.routing.owners[partition_of(keys)] == position
                for key, values in zip(keys[mine].tolist(), store.read(slots[mine]).tolist(), strict=True):
                    if len(set(values)) > 1:
                        self.violate(f"the weights of row {key} were not updated together")
                    rows[key] = rows.get(key, 0) + round(values[0])
        return np.array([rows.get(key, 0) for key in self._keys()], np.int64)

    def _keys(self) -> list[int]:
        """Return the keys of the samples' rows, then of the shared ones."""
        return [*range(self.samples), *self._shared_keys().tolist()]

    @contextlib.contextmanager
    def _installed(self) -> Iterator[None]:
        """Replace the real environment with the simulated one."""
        fake_threads, fake_time = SimThreading(self.scheduler), SimTime(self.scheduler)
        write, sync = snapshot_files._write_array, snapshot_files._sync

        def write_array(*args: Any) -> str:
            self.scheduler.wait(self.scheduler.delay(0.002))  # a crash may happen between two files
            if self.scheduler.now < self.disk_full_until:
                raise OSError(28, "No space left on device")
            return write(*args)

        def sync_folder(folder: Path) -> None:
            self.scheduler.wait(self.scheduler.delay(0.002))
            if self.scheduler.now < self.disk_full_until:
                raise OSError(5, "Input/output error")
            sync(folder)

        def rule(optimizer: Optimizer) -> UpdateRule:
            return Applications(1.0) if self.sync else make_rule(optimizer)

        with contextlib.ExitStack() as stack:

            def put(owner: Any, name: str, value: Any) -> None:
                stack.enter_context(mock.patch.object(owner, name, value))

            for name, module in list(sys.modules.items()):
                if name.startswith("sizewright.training"):
                    for attribute, real, fake in (
                        ("threading", threading, fake_threads), ("time", time, fake_time),
                        ("connect", _REAL_CONNECT, self.network.connect),
                    ):  # fmt: skip
                        if getattr(module, attribute, None) is real:
                            put(module, attribute, fake)
            for name, method in SimListener(self.network).methods().items():
                put(listeners.Listener, name, method)
            put(session, "Engine", lambda *_, **__: SimEngine(self.ray))
            put(session, "NodeAgent", lambda *_: SimMachine(self.ray))
            put(session, "check_device", lambda *_: None)
            put(session, "uninterrupted", contextlib.nullcontext)
            put(session, "atexit", mock.Mock())
            put(session, "lock_folder", lambda *_: contextlib.nullcontext())
            put(snapshots, "lock_folder", lambda *_: contextlib.nullcontext())
            put(worker_actor, "ThreadPoolExecutor", _Pool)
            put(worker_actor, "wait", _wait)
            put(worker_actor, "_warm_up", lambda *_: np.zeros(DENSE, np.float32))
            put(replica, "ReplicaLimits", _Limits)
            put(replica, "os", _Os())
            put(replica, "check_import_folder", lambda: None)
            put(replica.Replica, "node", lambda _: "")
            put(snapshot_store.SnapshotStore, "node", lambda _: "")
            put(snapshot_store, "os", _Os())
            put(snapshot_store, "check_import_folder", lambda: None)
            put(network_step, "NetworkStep", Counting)
            put(ps_actor, "make_rule", rule)
            put(snapshot_store, "make_rule", rule)
            put(snapshot_files, "_write_array", write_array)
            put(snapshot_files, "_sync", sync_folder)
            put(ps_actor, "_WARM_UP_ROWS", 1)
            for name in ("_CHUNK", "_LAST_ROUND_ROWS"):  # copies in many steps, so that other events fall between them
                put(migration, name, self.rows_at_once)
            put(snapshot_store, "_CHUNK", 64)
            put(sys, "setswitchinterval", lambda _: None)
            put(AuditProgram, "network", lambda *_: None)
            put(AuditProgram, "samples", lambda *_: _Samples())
            yield


_REAL_CONNECT = wire.connect


def run_schedule(seed: int) -> Report:
    """Run the schedule of a seed."""
    return World(seed).run()
