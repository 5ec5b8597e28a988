"""A session: one job that trains, and whose replicas change in number and size while it does."""

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
from sizewright.training.account import Account
from sizewright.training.allocation_check import check_allocation
from sizewright.training.crew import Crew
from sizewright.training.device import check_device
from sizewright.training.engine import NAMESPACE, Engine, engine_died
from sizewright.training.fleet import Fleet, Member, StoreProcess
from sizewright.training.heartbeats import Heartbeats
from sizewright.training.leases.lease_server import LeaseServer
from sizewright.training.leases.sample_leases import SampleLeases
from sizewright.training.machine import Machine
from sizewright.training.outcomes import Ledger
from sizewright.training.program import BuiltIn, Program
from sizewright.training.recovery import Recovery
from sizewright.training.snapshot_files import check_folder, held, resumed_info
from sizewright.training.snapshots import Snapshots
from sizewright.training.transport.links import RayTransport, TcpTransport
from sizewright.training.transport.wire import TOKEN_BYTES

_FIRST_STEPS = 1
_ANSWER_S = 5.0
_SESSION_NUMBERS = itertools.count()


class Session:
    """Starts Ray, or joins the cluster at `address`, once. Use as a context manager: leaving it ends every process
    and removes every control group.

    Without `samples` it trains for ever over tables filled to their rows, as trials do. With `samples` each sample is
    trained exactly once as long as nothing fails. `reserve` says how many idle, loaded replicas of each role are kept
    at hand. Every `snapshot_s` seconds what has changed is kept in memory elsewhere, and on disk below `folder`;
    `resume` is such a folder of an earlier run. With `recover` new replicas take the places of those that die. One
    that does not answer for `hang_s` is ended, and counts as one that has died.
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
        self.job = job.with_absolute_path()
        if address is None:
            check_device(job)
        self._address = address
        folder = None if folder is None else absolute(folder)  # replicas work in other folders
        self._resume = resume = None if resume is None else absolute(resume)
        resumed = resumed_info(resume, self.job, samples)
        check_folder(folder, resume)
        self._recover = recover
        self._begun = False  # it has trained
        self._written = {folder}  # where it has snapshots of its own
        self._changing = threading.Lock()  # a change that a user asks for
        self._lock = threading.RLock()  # any work on the replicas
        self._busy = ""
        self._token = secrets.token_bytes(TOKEN_BYTES)
        # Of all drivers on a cluster, whose numbers of processes may be the same.
        name = f"sizewright-{os.getpid()}-{next(_SESSION_NUMBERS)}-{secrets.token_hex(2)}"
        self._engine: Engine | None = None
        self._crew: Crew | None = None
        self._parts: list[LeaseServer] = []
        self._machine: Machine | None = None
        self._held = contextlib.ExitStack()
        try:
            self._held.enter_context(held(folder))
            atexit.register(self.stop)  # for a program that ends without
            with uninterrupted():  # a Ray that is cut short while it starts may crash this process
                self._machine = Machine(name)
                self._engine = Engine(self._machine.tree, address=address)
                fleet = Fleet(self._engine, name, self._machine, timeout_s=timeout_s)
                fleet.wanted_reserve = dict(reserve or {})
                book = SampleLeases(
                    samples, batch_size=job.training.batch_size, trained=list(resumed.trained), again=resumed.again
                )
                self._leases = LeaseServer(book, self._token, self._engine.ip())
                self._parts.append(self._leases)
                way = TcpTransport(self._token) if transport == "tcp" else RayTransport(name, NAMESPACE)
                self._crew = Crew(self.job, program or BuiltIn(), fleet, self._leases, self._token, way)
                self._crew.servers.fill = samples is None
                self._account = Account(
                    self._crew, updates_lost=resumed.updates_lost, samples_repeated=resumed.samples_repeated
                )
                self._snapshots = Snapshots(
                    self._crew, self._token, self._account, interval_s=snapshot_s, folder=folder
                )
                self._ledger = Ledger(resumed.trained.total)
                self._recovery = Recovery(self._crew, self._snapshots, self._account, self._lock, self._ledger.at_s)
                self._heartbeats = Heartbeats(
                    self._watched,
                    beat=lambda member: member.actor.pid.remote(),
                    answered=fleet.answered,
                    end=fleet.end_silent,
                    engine_alive=self._engine.alive,
                    lost=lambda: self._recovery.give_up(engine_died()),
                    limit_s=hang_s,
                )
                self._heartbeats.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def whole_cores(self) -> bool:
        """Whether replicas can be held to whole cores only, for want of control groups."""
        return any(offer.tree is None for offer in self._live.fleet.offers)

    @property
    def host(self) -> str:
        """Where it trains: this host's name, or the cluster's address."""
        return self._address or socket.gethostname()

    @property
    def cores(self) -> float:
        """Cores of all machines."""
        return sum(offer.cores for offer in self._live.fleet.offers)

    @property
    def memory_bytes(self) -> int:
        """Memory of all machines that was free when the session began."""
        return sum(offer.memory_bytes for offer in self._live.fleet.offers)

    @property
    def allocation(self) -> Allocation | None:
        """What trains now; None before the first `scale` and after `pause`."""
        return self._crew.allocation if self._crew and self._crew.routing and not self._crew.paused else None

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        """Train at `allocation`; returns once it does, with limits on.

        While it trains at the same table scale the change is live: newcomers load while the others train on, leavers
        finish their batch, rows move to where they will be. Without `samples` another table scale starts training
        anew, as a paused session does when its servers change. Raises EngineError when the hosts cannot hold it or
        another change is under way, and other errors when a replica fails; what trained before trains on then.
        """
        check_allocation(allocation, self._live.fleet.offers)
        with self._change("scale", allocation.describe()):
            crew = self._live
            same_servers = crew.routing is not None and _same_servers(crew.allocation, allocation)
            anew = table_scale != crew.servers.scale or (crew.paused and not same_servers)
            if crew.routing is None or (anew and crew.servers.fill):
                self._launch(allocation, table_scale)
            else:
                if table_scale != crew.servers.scale:
                    raise EngineError("The tables of a job that trains keep their rows.", "Leave table_scale out.")
                if crew.paused:
                    crew.regather(allocation if same_servers else crew.allocation)
                    crew.await_steps(_FIRST_STEPS)
                if crew.allocation != allocation:
                    crew.change(allocation)
        self._fill_reserve()

    def load_ahead(self, *, workers: int, ps: int) -> None:
        """Load so many replicas before they are needed, so that allocations up to that many start none."""
        with self._lock:
            size = Resources(cpu=1.0, memory_bytes=0)
            self._live.load_ahead({"worker": workers, "ps": ps}, size)

    def replace(self, name: str) -> str:
        """Put a new process in the place of a replica such as `ps-1`, and return its name."""
        with self._change("replace", name):
            self._check_trains()
            old = next((member for member in self._live.roster.members if member.name == name), None)
            if old is None:
                known = ", ".join(member.name for member in self._live.roster.members)
                raise EngineError(f"There is no replica {name}.", f"There are: {known}.")
            return self._live.replace(old).name

    def rebalance(self) -> None:
        """Move rows between the PS, while it trains on, so that each serves as many look-ups as the others.

        Raises EngineError for a job with one PS. Later changes keep to the look-ups that were counted.
        """
        with self._change("rebalance", "look-ups"):
            self._check_trains()
            self._live.rebalance()

    def expect_memory(self, ps_bytes: int) -> None:
        """What a PS is forecast to need: one that memory ends comes back with that."""
        self._recovery.ps_needs_bytes = ps_bytes

    def pause(self) -> None:
        """Stop training, replicas stay loaded; the next `scale` goes on."""
        with self._lock:
            if self._live.routing is not None and not self._live.paused:
                self._live.pause()
                self._live.fleet.get([m.actor.set_cpu.remote(None) for m in self._live.roster.servers])

    def observe(self) -> Metrics:
        """Sums of every replica.

        Raises ReplicaDiedError when one has died or its training has failed, unless the session recovers.
        """
        if self._recovery.gave_up is not None:
            raise self._recovery.gave_up
        readings = self._readings()
        with self._leases.lock:
            trained, left = self._leases.book.trained, self._leases.book.remaining()
        assert self._engine is not None
        return Metrics(
            replicas=tuple(reading for _, reading in readings),
            engine_cpu_s=self._engine.cpu_used_s(),
            samples_trained=trained,
            samples_left=left,
            trains_s=self._ledger.at_s(),
        )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether all samples are trained; waits at most `timeout_s` for it. Raises what ended the session."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._leases.finished.wait(0.1 if timeout_s is None else min(timeout_s, 0.1)):
            if self._recovery.gave_up is not None:
                raise self._recovery.gave_up
            if not self._recover:
                self.observe()
            if deadline is not None and time.monotonic() > deadline:
                return False
        return True

    def outcome(self) -> Outcome:
        """What has been trained, changed, lost and repeated so far."""
        with self._leases.lock:
            trained, finished = self._leases.book.trained, self._leases.book.finished
        self._settle()
        return self._ledger.outcome(
            trained, finished, self._recovery.gave_up, self._recovery.failures, self._snapshots, self._account
        )

    def checkpoint(self, folder: str | Path) -> None:
        """Write everything to disk as of one moment, for which workers wait.

        Raises EngineError when it cannot, and JobError for a folder with snapshots of another run.
        """
        folder = absolute(folder)
        if folder not in self._written:
            check_folder(folder, self._resume)
        with self._change("checkpoint", folder):
            self._check_trains()
            self._open_store()
            self._snapshots.take_whole(folder, resume=True)
            self._written.add(folder)

    def pids(self) -> dict[str, int]:
        """Processes of the replicas by name, such as `worker-0`."""
        return {member.name: pid for member, pid in self._ask("pid")}

    def step_times(self) -> dict[str, list[float]]:
        """When the last steps of each worker ended, on its machine's monotonic clock."""
        workers = list(self._live.roster.workers)
        times = self._live.fleet.get([worker.actor.step_times.remote() for worker in workers])
        return dict(zip((worker.name for worker in workers), times, strict=True))

    def discard(self) -> None:
        """End all replicas, for instance after a failure; Ray stays for the next `scale`."""
        with self._lock:
            self._live.end()

    def stop(self) -> None:
        """End everything that this session started; a further Ctrl-C does not cut it short."""
        with uninterrupted():
            try:
                if self._crew is not None:
                    self._ledger.stop()
                    self._recovery.stop()
                    self._settle()
                    if self._recovery.gave_up is None or isinstance(self._recovery.gave_up, EngineDiedError):
                        self._last_snapshot()  # also where only Ray has gone, while replicas are there
                    self._heartbeats.stop()
                    self._snapshots.stop()
                    if self._engine and self._engine.alive():
                        self.discard()
                        self._crew.fleet.close()
                    elif self._engine and not self._engine.local:  # what is on other machines does not end with it
                        with contextlib.suppress(SizewrightError):
                            self._crew.fleet.kill(self._crew.fleet.loaded)
                    self._crew = None
            finally:
                for part in self._parts:
                    part.close()
                self._parts = []
                if self._engine:
                    self._engine.stop()
                    self._engine = None
                if self._machine:
                    self._machine.close()
                self._held.close()
                atexit.unregister(self.stop)

    @property
    def _live(self) -> Crew:
        if self._crew is None:
            raise EngineError("The session has been stopped.", "Start a new one.")
        return self._crew

    def _launch(self, allocation: Allocation, table_scale: float) -> None:
        crew = self._live
        if self._resume is not None and not self._begun:
            self._open_store()
            self._snapshots.load(self._resume)
        kept = self._snapshots.on and not crew.servers.fill
        crew.launch(allocation, table_scale, self._snapshots.restore if kept else None)
        crew.await_steps(_FIRST_STEPS)
        if not self._begun:
            self._begun = True
            self._ledger.start()
            if self._snapshots.wanted:
                self._open_store()
                self._snapshots.start(lambda: not crew.paused)
            if self._recover:
                self._recovery.start()

    def _settle(self) -> None:
        """Count what is lost: a report may come after the failure that it is of."""
        if self._begun and self._crew is not None and self._crew.routing is not None and not self._crew.servers.fill:
            # Not amid a snapshot, which is to have all that is counted as lost by then, and nothing else.
            with contextlib.suppress(SizewrightError), self._lock, self._snapshots.lock:
                self._account.settle()

    def _watched(self) -> list[Member | StoreProcess]:
        crew, store = self._crew, self._snapshots.process
        members = crew.fleet.loaded if crew is not None else []
        return [*members, *([store] if store is not None else [])]

    def _last_snapshot(self) -> None:
        """What has been trained since the last one, for a session that keeps any on disk."""
        if self._snapshots.folder is not None and self._snapshots.on and self._begun:
            self._snapshots.take_last()

    def _open_store(self) -> None:
        self._snapshots.open(self._live.first_dense)

    def _fill_reserve(self) -> None:
        with self._lock:
            self._live.fill_reserve()

    @contextlib.contextmanager
    def _change(self, kind: str, description: str) -> Iterator[None]:
        if not self._changing.acquire(blocking=False):
            raise EngineError(f"A change is under way ({self._busy}); the job trains on.", "Ask again when it is done.")
        try:
            self._busy = f"{kind} {description}"
            with self._lock:
                if self._recover:
                    self._recovery.look()
                start = time.monotonic()
                yield
                self._ledger.changed(kind, time.monotonic() - start, description)
        finally:
            self._busy = ""
            self._changing.release()

    def _readings(self) -> list[tuple[Member, ReplicaMetrics]]:
        readings = self._ask("observe")
        if not self._recover:
            for fault in self._live.fleet.get([m.actor.fault.remote() for m in self._live.roster.members]):
                if fault:
                    raise self._live.fleet.died(fault)
        return readings

    def _ask(self, method: str) -> list[tuple[Member, Any]]:
        """What every replica answers; a session that recovers leaves out those that have just died or do not answer."""
        asked = [(member, getattr(member.actor, method).remote()) for member in self._live.roster.members]
        if not self._recover:
            members = [member for member, _ in asked]
            return list(zip(members, self._live.fleet.get([ref for _, ref in asked]), strict=True))
        found, there = [], self._live.fleet.answered([ref for _, ref in asked], _ANSWER_S)
        for member, ref in asked:
            if ref not in there:
                continue
            with contextlib.suppress(SizewrightError):
                found.append((member, self._live.fleet.get([ref])[0]))
        return found

    def _check_trains(self) -> None:
        if self.allocation is None:
            raise EngineError("The session does not train now.", "Let it train first: scale(allocation).")


def _same_servers(a: Allocation, b: Allocation) -> bool:
    return list(a.each("ps")) == list(b.each("ps"))
