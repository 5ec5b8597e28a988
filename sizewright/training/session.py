"""A training session: one job whose replicas may change in number and size while it trains."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from sizewright.errors import EngineDiedError, EngineError, SizewrightError
from sizewright.interrupts import uninterrupted
from sizewright.spec import Allocation, Job, Metrics, Outcome, ReplicaMetrics, Resources
from sizewright.spec._paths import absolute
from sizewright.training.host.allocation_check import check_allocation
from sizewright.training.host.device import check_device
from sizewright.training.leases.lease_server import LeaseServer
from sizewright.training.leases.sample_leases import SampleLeases
from sizewright.training.program import BuiltIn, Program
from sizewright.training.ps.snapshot_files import SnapshotInfo, check_folder, lock_folder, resumed_info
from sizewright.training.ps.snapshots import Snapshots
from sizewright.training.ray.actor_pool import ActorPool, ReplicaHandle, StoreProcess
from sizewright.training.ray.engine import NAMESPACE, Engine, engine_died
from sizewright.training.ray.node_agent import NodeAgent
from sizewright.training.replicas.account import Account
from sizewright.training.replicas.heartbeats import Heartbeats
from sizewright.training.replicas.recovery import Recovery
from sizewright.training.replicas.replica_group import ReplicaGroup
from sizewright.training.replicas.session_stats import SessionStats
from sizewright.training.transport.links import RayTransport, TcpTransport
from sizewright.training.transport.wire import TOKEN_BYTES

_FIRST_STEPS = 1
_ANSWER_S = 5.0
_CHECK_EVERY_S = 0.5
"""Without recovery, waiting asks all replicas so often whether they still train: each call costs them CPU time."""
_SESSION_NUMBERS = itertools.count()


class Session:
    """Trains a job on a local Ray, or on the cluster at `address`.

    Use it as a context manager: leaving it ends every process and removes every control group.

    Without `samples` it trains endlessly over tables filled with all their rows, as trials do. With `samples` it makes
    one pass: each sample is trained once; after a PS failure, updates since its snapshot are lost and counted; a sample
    is repeated only where a batch covers samples that a part has only in part, and that is counted.

    `reserve` is the number of idle, loaded replicas to keep for each role. Every `snapshot_s` seconds a snapshot is
    taken in memory, and written to disk below `folder` if that is given; `resume` is such a folder of an earlier run.
    With `recover`, new replicas replace those that die. A replica that does not answer for `hang_s` seconds is ended
    and counts as dead.
    """

    def __init__(
        self,
        job: Job,
        *,
        address: str | None = None,
        samples: int | None = None,
        snapshot_s: float | None = None,
        folder: str | Path | None = None,
        resume: str | Path | None = None,
        recover: bool = False,
        hang_s: float = 30.0,
        reserve: Mapping[str, int] | None = None,
        transport: Literal["tcp", "ray"] = "tcp",
        program: Program | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        job.check_trainable()
        self.job = job.with_absolute_path()
        if address is None:
            check_device(job)
        self._address = address
        folder = None if folder is None else absolute(folder)  # replicas work in other folders
        self._resume = resume = None if resume is None else absolute(resume)
        resumed = resumed_info(resume, self.job, samples)
        check_folder(folder, resume)
        self._recover = recover
        self._checked_s = time.monotonic()
        self._begun = False  # whether training has begun
        self._written = {folder}  # folders with snapshots of this session
        self._changing = threading.Lock()  # held during a change that the user requested
        self._lock = threading.RLock()  # held during any work on the replicas
        self._busy = ""
        self._token = secrets.token_bytes(TOKEN_BYTES)
        # Unique among all drivers on a cluster, which may have equal process ids on different machines.
        name = f"sizewright-{os.getpid()}-{next(_SESSION_NUMBERS)}-{secrets.token_hex(2)}"
        self._engine: Engine | None = None
        self._replica_group: ReplicaGroup | None = None
        self._listeners: list[LeaseServer] = []
        self._node_agent: NodeAgent | None = None
        self._held = contextlib.ExitStack()
        try:
            self._held.enter_context(lock_folder(folder))
            atexit.register(self.stop)  # for a program that ends without calling it
            with uninterrupted():  # an interrupted start of Ray may crash this process
                pool = self._start_engine(name, timeout_s)
                pool.requested_reserve = dict(reserve or {})
                self._lease_server = self._serve_leases(samples, resumed)
                links = TcpTransport(self._token) if transport == "tcp" else RayTransport(name, NAMESPACE)
                self._replica_group = ReplicaGroup(
                    self.job, program or BuiltIn(), pool, self._lease_server, self._token, links
                )
                self._replica_group.servers.fill = samples is None
                self._account = Account(
                    self._replica_group, updates_lost=resumed.updates_lost, samples_repeated=resumed.samples_repeated
                )
                self._snapshots = Snapshots(
                    self._replica_group, self._token, self._account, interval_s=snapshot_s, folder=folder
                )
                self._stats = SessionStats(resumed.trained.total)
                self._recovery = Recovery(
                    self._replica_group, self._snapshots, self._account, self._lock, self._stats.at_s
                )
                self._heartbeats = self._start_heartbeats(pool, hang_s)
        except BaseException:
            self.stop()
            raise

    def _start_engine(self, name: str, timeout_s: float) -> ActorPool:
        """Start Ray, or connect to it, and return the pool of the session's actors."""
        self._node_agent = NodeAgent(name)
        self._engine = Engine(self._node_agent.tree, address=self._address)
        return ActorPool(self._engine, name, self._node_agent, timeout_s=timeout_s)

    def _serve_leases(self, samples: int | None, resumed: SnapshotInfo) -> LeaseServer:
        """Serve leases of the samples that the run that this one resumes has not trained."""
        assert self._engine is not None
        sample_leases = SampleLeases(
            samples,
            batch_size=self.job.training.batch_size,
            trained=list(resumed.trained),
            partly_applied=resumed.partly_applied,
        )
        lease_server = LeaseServer(sample_leases, self._token, self._engine.ip())
        self._listeners.append(lease_server)
        return lease_server

    def _start_heartbeats(self, pool: ActorPool, limit_s: float) -> Heartbeats:
        heartbeats = Heartbeats(
            self._watched,
            beat=lambda member: member.actor.pid.remote(),
            answered=pool.answered,
            end=pool.end_silent,
            engine_alive=pool.engine.alive,
            lost=lambda: self._recovery.give_up(engine_died()),
            limit_s=limit_s,
        )
        heartbeats.start()
        return heartbeats

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def whole_cores(self) -> bool:
        """Return whether CPU limits can be whole cores only, because there are no control groups."""
        return any(available.tree is None for available in self._live.pool.node_resources)

    @property
    def host(self) -> str:
        """The name of this host, or the cluster's address."""
        return self._address or socket.gethostname()

    @property
    def cores(self) -> float:
        """The cores of all machines."""
        return sum(available.cores for available in self._live.pool.node_resources)

    @property
    def gpus(self) -> int:
        """The GPUs of all machines."""
        return sum(available.gpus for available in self._live.pool.node_resources)

    @property
    def memory_bytes(self) -> int:
        """The free memory of all machines when the session began."""
        return sum(available.memory_bytes for available in self._live.pool.node_resources)

    @property
    def allocation(self) -> Allocation | None:
        """The current allocation; None before the first `scale` and after `pause`."""
        return (
            self._replica_group.allocation
            if self._replica_group and self._replica_group.routing and not self._replica_group.paused
            else None
        )

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        """Train at `allocation`; return once all workers train within their limits.

        While the session trains at the same table scale, the change is live: new replicas load while the others train,
        leaving workers finish their batch, and rows move to their new servers. Without `samples`, another table scale
        starts training from scratch, as does a paused session whose servers change.

        Raise EngineError if the hosts cannot hold the allocation or another change is in progress, and other errors if
        a replica fails. The previous replicas then continue to train.
        """
        check_allocation(allocation, self._live.pool.node_resources)
        with self._change("scale", allocation.describe()):
            replica_group = self._live
            same_servers = replica_group.routing is not None and (
                list(replica_group.allocation.each("ps")) == list(allocation.each("ps"))
            )
            same_scale = table_scale == replica_group.servers.scale
            can_continue = same_scale and (same_servers or not replica_group.paused)
            if replica_group.routing is None or (replica_group.servers.fill and not can_continue):
                self._launch(allocation, table_scale)
            else:
                if not same_scale:
                    raise EngineError("The table scale cannot change while a job trains.", "Leave table_scale out.")
                if replica_group.paused:
                    replica_group.regather(allocation if same_servers else replica_group.allocation)
                    replica_group.await_steps(_FIRST_STEPS)
                if replica_group.allocation != allocation:
                    replica_group.change(allocation)
        with self._lock:
            self._live.fill_reserve()

    def load_ahead(self, *, workers: int, ps: int) -> None:
        """Load replicas before they are needed, so that allocations up to this many start none."""
        with self._lock:
            size = Resources(cpu=1.0, memory_bytes=0)
            self._live.load_ahead({"worker": workers, "ps": ps}, size)

    def replace(self, name: str) -> str:
        """Replace a replica such as `ps-1` by a new process, and return its name."""
        with self._change("replace", name):
            self._check_trains()
            old = next((member for member in self._live.membership.members if member.name == name), None)
            if old is None:
                known = ", ".join(member.name for member in self._live.membership.members)
                raise EngineError(f"There is no replica {name}.", f"There are: {known}.")
            return self._live.replace(old).name

    def rebalance(self) -> None:
        """Move rows between the PS while training goes on, so that all serve equally many look-ups.

        Later changes keep the balance by the counted look-ups. Raise EngineError for a job with one PS.
        """
        with self._change("rebalance", "look-ups"):
            self._check_trains()
            self._live.rebalance()

    def expect_memory(self, ps_bytes: int) -> None:
        """Set the forecast memory of a PS; one that runs out of memory is restarted with it."""
        self._recovery.ps_needs_bytes = ps_bytes

    def pause(self) -> None:
        """Stop training until the next `scale`; replicas stay loaded."""
        with self._lock:
            if self._live.routing is not None and not self._live.paused:
                self._live.pause()
                self._live.pool.get([m.actor.set_cpu.remote(None) for m in self._live.membership.servers])

    def observe(self) -> Metrics:
        """Return the metrics of every replica.

        Raise ReplicaDiedError if a replica has died or its training has failed, unless the session recovers.
        """
        if self._recovery.gave_up is not None:
            raise self._recovery.gave_up
        readings = self._readings()
        with self._lease_server.lock:
            trained = self._lease_server.leases.trained
            remaining = self._lease_server.leases.remaining()
        assert self._engine is not None
        return Metrics(
            replicas=tuple(reading for _, reading in readings),
            engine_cpu_s=self._engine.cpu_used_s(),
            samples_trained=trained,
            samples_left=remaining,
            trains_s=self._stats.at_s(),
        )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait at most `timeout_s` until all samples are trained, and return whether they are.

        Raise the error that ended the session, if any. A dead replica is noticed within half a second.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._lease_server.finished.wait(0.1 if timeout_s is None else min(timeout_s, 0.1)):
            if self._recovery.gave_up is not None:
                raise self._recovery.gave_up
            if not self._recover and time.monotonic() - self._checked_s > _CHECK_EVERY_S:
                self.observe()  # raises if a replica has died
                self._checked_s = time.monotonic()
            if deadline is not None and time.monotonic() > deadline:
                return False
        return True

    def outcome(self) -> Outcome:
        """Return what has been trained, changed, lost and repeated so far."""
        with self._lease_server.lock:
            trained, finished = self._lease_server.leases.trained, self._lease_server.leases.finished
        self._count_losses()
        return self._stats.outcome(
            trained, finished, self._recovery.gave_up, self._recovery.failures, self._snapshots, self._account
        )

    def checkpoint(self, folder: str | Path) -> None:
        """Write a consistent snapshot to disk, for which workers wait.

        Raise EngineError if it cannot be written, and JobError if the folder has snapshots of another run.
        """
        folder = absolute(folder)
        if folder not in self._written:
            check_folder(folder, self._resume)
        with self._change("checkpoint", folder):
            self._check_trains()
            self._open_store()
            self._snapshots.take_consistent(folder, resume=True)
            self._written.add(folder)

    def pids(self) -> dict[str, int]:
        """Return the process ids of the replicas by name, such as `worker-0`."""
        return {member.name: pid for member, pid in self._ask("pid")}

    def step_times(self) -> dict[str, list[float]]:
        """Return when the last steps of each worker ended, on its machine's monotonic clock."""
        workers = list(self._live.membership.workers)
        times = self._live.pool.get([worker.actor.step_times.remote() for worker in workers])
        return dict(zip((worker.name for worker in workers), times, strict=True))

    def discard(self) -> None:
        """End all replicas, for instance after a failure; Ray stays for the next `scale`."""
        with self._lock:
            self._live.end()

    def stop(self) -> None:
        """End everything that this session started; a further Ctrl-C does not interrupt it."""
        with uninterrupted():
            try:
                if self._replica_group is not None:
                    self._stats.stop()
                    self._recovery.stop()
                    self._count_losses()
                    if self._recovery.gave_up is None or isinstance(self._recovery.gave_up, EngineDiedError):
                        self._last_snapshot()  # also if only Ray has ended, since replicas may still run
                    self._heartbeats.stop()
                    self._snapshots.stop()
                    if self._engine and self._engine.alive():
                        self.discard()
                        self._replica_group.pool.close()
                    elif self._engine and not self._engine.local:  # processes on other machines do not end with Ray
                        with contextlib.suppress(SizewrightError):
                            self._replica_group.pool.kill(self._replica_group.pool.loaded)
                    self._replica_group = None
            finally:
                for listener in self._listeners:
                    listener.close()
                self._listeners = []
                if self._engine:
                    self._engine.stop()
                    self._engine = None
                if self._node_agent:
                    self._node_agent.close()
                self._held.close()
                atexit.unregister(self.stop)

    @property
    def _live(self) -> ReplicaGroup:
        if self._replica_group is None:
            raise EngineError("The session has been stopped.", "Start a new one.")
        return self._replica_group

    def _launch(self, allocation: Allocation, table_scale: float) -> None:
        replica_group = self._live
        if self._resume is not None and not self._begun:
            self._open_store()
            self._snapshots.load(self._resume)
        kept = self._snapshots.on and not replica_group.servers.fill
        replica_group.launch(allocation, table_scale, self._snapshots.fill_from_snapshot if kept else None)
        replica_group.await_steps(_FIRST_STEPS)
        if not self._begun:
            self._begun = True
            self._stats.start()
            if self._snapshots.at_interval:
                self._open_store()
                self._snapshots.start(lambda: not replica_group.paused)
            if self._recover:
                self._recovery.start()

    def _count_losses(self) -> None:
        """Count lost updates; the servers may report them after the failure."""
        if (
            self._begun
            and self._replica_group is not None
            and self._replica_group.routing is not None
            and not self._replica_group.servers.fill
        ):
            # Not during a snapshot, which must contain exactly the losses that were counted before it.
            with contextlib.suppress(SizewrightError), self._lock, self._snapshots.lock:
                self._account.count_losses()

    def _watched(self) -> list[ReplicaHandle | StoreProcess]:
        replica_group, store = self._replica_group, self._snapshots.process
        members = replica_group.pool.loaded if replica_group is not None else []
        return [*members, *([store] if store is not None else [])]

    def _last_snapshot(self) -> None:
        """Write a last snapshot, if the session keeps snapshots on disk."""
        if self._snapshots.folder is not None and self._snapshots.on and self._begun:
            self._snapshots.take_last()

    def _open_store(self) -> None:
        self._snapshots.open(self._live.first_dense)

    @contextlib.contextmanager
    def _change(self, kind: str, description: str) -> Iterator[None]:
        if not self._changing.acquire(blocking=False):
            raise EngineError(
                f"Another change is in progress ({self._busy}). Training continues.", "Try again when it is done."
            )
        try:
            self._busy = f"{kind} {description}"
            with self._lock:
                if self._recover:
                    self._recovery.check()
                start = time.monotonic()
                yield
                self._stats.changed(kind, time.monotonic() - start, description)
        finally:
            self._busy = ""
            self._changing.release()

    def _readings(self) -> list[tuple[ReplicaHandle, ReplicaMetrics]]:
        readings = self._ask("observe")
        if not self._recover:
            for fault in self._live.pool.get([m.actor.fault.remote() for m in self._live.membership.members]):
                if fault:
                    raise self._live.pool.died(fault)
        return readings

    def _ask(self, method: str) -> list[tuple[ReplicaHandle, Any]]:
        """Return the answers of all replicas; with recovery, those that have died or do not answer are left out."""
        calls = [(member, getattr(member.actor, method).remote()) for member in self._live.membership.members]
        refs = [ref for _, ref in calls]
        if not self._recover:
            members = [member for member, _ in calls]
            return list(zip(members, self._live.pool.get(refs), strict=True))
        answered = self._live.pool.answered(refs, _ANSWER_S)
        answers = []
        for member, ref in calls:
            if ref in answered:
                with contextlib.suppress(SizewrightError):
                    answers.append((member, self._live.pool.get([ref])[0]))
        return answers

    def _check_trains(self) -> None:
        if self.allocation is None:
            raise EngineError("The session is not training.", "Start training first: scale(allocation).")
