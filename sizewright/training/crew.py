"""The replicas that train together, and how their number and size change while they do."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from sizewright.errors import EngineError, SizewrightError, TrialTimeoutError
from sizewright.spec import Allocation, Job, Resources, Role
from sizewright.training.fleet import Fleet, Member
from sizewright.training.leases.lease_server import LeaseServer
from sizewright.training.matching import match
from sizewright.training.optimizers import Floats
from sizewright.training.program import Program
from sizewright.training.ps_team import PsTeam, Restore, in_place
from sizewright.training.roster import Roster
from sizewright.training.routing import Routing
from sizewright.training.transport.links import Transport
from sizewright.training.worker_team import WorkerTeam

ROLES: tuple[Role, ...] = ("ps", "worker")
Sized = Sequence[tuple[Member, Resources]]


class Crew:
    """Servers and workers of one session. A change that fails leaves those that trained before training on."""

    def __init__(
        self, job: Job, program: Program, fleet: Fleet, leases: LeaseServer, token: bytes, transport: Transport
    ) -> None:
        self.job, self.program, self.fleet, self.leases = job, program, fleet, leases
        self.roster = Roster()
        self.servers = PsTeam(job, program, fleet, self.roster, token)
        self.workers = WorkerTeam(program, fleet, self.roster, leases, token, transport)
        self.paused = False
        self.first_dense: Floats = np.empty(0, np.float32)

    @property
    def routing(self) -> Routing | None:
        """None before the first launch, and when all has been ended."""
        return self.servers.routing

    @property
    def allocation(self) -> Allocation:
        """What trains now."""
        return self.roster.allocation(self.job.training.batch_size)

    def launch(self, allocation: Allocation, scale: float, restore: Restore | None = None) -> None:
        """Start all anew at an allocation, with tables of `scale` times their rows."""
        self.halt()
        self._begin_at(allocation)
        self.servers.scale = scale
        self._gather("ps", allocation)
        self._gather("worker", allocation)
        self.first_dense = self._load(self.roster.members)
        self.servers.open(self.first_dense, restore)
        self._join(self.roster.workers)
        self.roster.hold(self.fleet, self.roster.servers)

    def change(self, allocation: Allocation) -> None:
        """Go over to another allocation while training goes on."""
        ps = match([(m, m.resources) for m in self.roster.servers], list(allocation.each("ps")), "ps")
        workers = match([(m, m.resources) for m in self.roster.workers], list(allocation.each("worker")), "worker")
        new_servers = self.fleet.start("ps", ps.new, leaving=ps.gone)
        with self._ended_unless_done(new_servers):
            new_workers = self.fleet.start("worker", workers.new, leaving=workers.gone)
        newcomers = [*new_servers, *new_workers]
        with self._ended_unless_done(newcomers):
            _give(newcomers, [*ps.new, *workers.new])
            self._load(newcomers)
            self._set_memory([(m, size) for m, size in ps.stay if _more(size.memory_bytes, m.resources.memory_bytes)])
            if ps.gone or new_servers:
                self.servers.move(in_place(self.roster.servers, ps.gone, new_servers), new_servers)
        with self._ended_unless_done(new_workers):
            self.retire(ps.gone)
            self._set_batch_size(allocation.batch_size)
            self._join(new_workers)
        self.roster.workers += new_workers
        self._leave(workers.gone)
        self._set_memory([*ps.stay, *workers.stay])  # less only now that rows have left
        self._set_cpu([*ps.stay, *workers.stay])

    def regather(self, allocation: Allocation) -> None:
        """After `pause`: go on with the same servers and other workers."""
        self._begin_at(allocation)
        self.workers.release(self.roster.workers)
        self._gather("worker", allocation)
        self._load(self.roster.workers)
        self._join(self.roster.workers)
        self.roster.hold(self.fleet, self.roster.servers)

    def await_steps(self, steps: int) -> None:
        """Wait until every worker has taken so many. Raises TrialTimeoutError when one does not."""
        deadline = time.monotonic() + self.fleet.timeout_s
        while True:
            faults = self.fleet.get([member.actor.fault.remote() for member in self.roster.members])
            if fault := next((fault for fault in faults if fault), None):
                raise self.fleet.died(fault)
            done = [m.steps for m in self.fleet.get([w.actor.observe.remote() for w in self.roster.workers])]
            if min(done) >= steps or self.leases.finished.is_set():
                return
            if time.monotonic() > deadline:
                raise TrialTimeoutError(
                    f"No worker finished {steps} steps in {self.fleet.timeout_s:g} s.",
                    "Give the replicas more cores, or the job a smaller batch.",
                )
            time.sleep(0.02)

    def replace(self, old: Member) -> Member:
        """Another process in the place of a replica that trains; returns it."""
        (new,) = self.fleet.start(old.role, [old.resources], leaving=[old])
        with self._ended_unless_done([new]):
            _give([new], [old.resources])
            self._load([new])
            if old.role == "ps":
                self.servers.move(in_place(self.roster.servers, [old], [new]), [new])
            else:
                self._join([new])
        if old.role == "ps":
            self.retire([old])
        else:
            self.roster.workers.append(new)
            self._leave([old])
        return new

    def rebalance(self) -> None:
        """Even out the look-ups of the servers while training goes on."""
        if len(self.roster.servers) < 2:
            raise EngineError("The job has one PS, which serves all look-ups.", "Scale it to two PS or more first.")
        self.servers.rebalance()

    def restore(self, dead: Sequence[Member], sizes: Sequence[Resources], restore: Restore) -> list[Member]:
        """New servers in the places of dead ones, with what `restore` has of their rows; returns them."""
        self.fleet.kill(dead)  # first: one that merely hangs must not go on
        new = self.fleet.start("ps", sizes)
        with self._ended_unless_done(new):
            _give(new, sizes)
            self._load(new)
            self.servers.restore(dead, new, restore)
        self.roster.hold(self.fleet, new)
        return new

    def put_in_place(self, dead: Sequence[Member]) -> None:
        """New workers of the same sizes for those that have died, who count as dead until then."""
        self.fleet.kill(dead)
        self.workers.release(dead)
        sizes = [member.resources for member in dead]
        new = self.fleet.start("worker", sizes)
        with self._ended_unless_done(new):
            _give(new, sizes)
            self._load(new)
            self._join(new)
        self.roster.workers = [*(member for member in self.roster.workers if member not in dead), *new]

    def pause(self) -> None:
        """Everything computed is pushed; workers stay loaded, servers keep their rows."""
        self.paused = True
        try:
            self.workers.let_go(self.roster.workers)
        except BaseException:
            self.paused = False
            raise

    def resume(self) -> None:
        """Go on after `pause`."""
        self.paused = False
        self.rejoin()

    def rejoin(self) -> None:
        """Let workers train again that stopped for a change which then failed."""
        if not self.paused and not self.leases.finished.is_set():
            workers = self.roster.workers
            busy = self.fleet.get([worker.actor.training.remote() for worker in workers])
            idle = [worker for worker, trains in zip(workers, busy, strict=True) if not trains]
            if idle and not self.leases.finished.is_set():
                self.workers.release(idle)  # they get new numbers
                self._join(idle)

    def halt(self) -> None:
        """Stop training without care for what is under way."""
        self.fleet.get([worker.actor.halt.remote() for worker in self.roster.workers])
        self.fleet.get([server.actor.close.remote() for server in self.roster.servers])
        for worker in self.roster.workers:
            self.leases.release(worker.joined, [])
        self.fleet.get([member.actor.set_cpu.remote(None) for member in self.roster.members])
        self.servers.routing = None

    def end(self) -> None:
        """End all replicas that train; what their workers had not trained is leased again."""
        self.fleet.kill(self.roster.members)
        for worker in self.roster.workers:
            self.leases.release(worker.joined, [])
        self.roster.servers, self.roster.workers, self.servers.routing = [], [], None

    def retire(self, members: Iterable[Member]) -> None:
        """Replicas that train no more go into the reserve where it has room, else they end."""
        for member in members:
            if self._room(member.role) > len(self.fleet.reserve[member.role]):
                with contextlib.suppress(SizewrightError):  # else it has died
                    self.fleet.get([member.actor.set_cpu.remote(None)])
                    if member.role == "ps":
                        self.fleet.get([member.actor.drain.remote()])
                        self.fleet.get([member.actor.discard.remote()])
                    self.fleet.keep([member])
                    continue
            elif member.role == "ps":
                with contextlib.suppress(SizewrightError):
                    self.fleet.get([member.actor.drain.remote()])
            self.fleet.kill([member])

    def load_ahead(self, counts: Mapping[Role, int], size: Resources) -> None:
        """Have so many loaded replicas of each role, training or idle, and keep them until the session ends."""
        self.fleet.wanted_in_all = counts
        new = []
        for role, count in counts.items():
            missing = count - len(self.roster.of(role)) - len(self.fleet.reserve[role])
            new += self.fleet.start(role, [size] * max(0, missing), fresh=True)
        self._load(new)
        self.fleet.keep(new)

    def fill_reserve(self) -> None:
        """Start and load what the reserve lacks, in the background."""
        for role in ROLES:
            missing = self.fleet.wanted_reserve.get(role, 0) - len(self.fleet.reserve[role])
            present = self.roster.of(role)
            if missing > 0 and present:
                new = self.fleet.start(role, [present[0].resources] * missing, fresh=True)
                for member in new:
                    member.actor.load.remote(self.job, self.program)
                self.fleet.keep(new)

    def _begin_at(self, allocation: Allocation) -> None:
        self.paused = False
        self.job = self.job.with_batch_size(allocation.batch_size)
        with self.leases.lock:
            self.leases.book.set_batch_size(allocation.batch_size)

    def _gather(self, role: Role, allocation: Allocation) -> None:
        """Members for this allocation: those at hand first."""
        present, sizes = self.roster.of(role), list(allocation.each(role))
        surplus = present[len(sizes) :]
        del present[len(sizes) :]
        self.retire(surplus)
        present += self.fleet.start(role, sizes[len(present) :])
        _give(present, sizes)

    def _load(self, members: Sequence[Member]) -> Floats:
        """Load libraries; returns the dense weights that training begins with."""
        workers = [member for member in members if member.role == "worker"]
        self.fleet.get([m.actor.set_memory.remote(m.resources.memory_bytes) for m in workers])
        loaded = self.fleet.get([member.actor.load.remote(self.job, self.program) for member in members])
        dense = [weights for weights in loaded if weights is not None]
        pids = self.fleet.get([member.actor.pid.remote() for member in members])
        for member, pid in zip(members, pids, strict=True):
            member.pid = pid
        if not self.fleet.engine.local:
            nodes = self.fleet.get([member.actor.node.remote() for member in members])
            for member, node in zip(members, nodes, strict=True):
                member.node = node
        return dense[0] if dense else np.empty(0, np.float32)

    def _join(self, workers: Sequence[Member]) -> None:
        assert self.routing is not None
        self.workers.join(workers, self.job, self.servers.scale, self.routing)

    def _leave(self, workers: Sequence[Member]) -> None:
        self.workers.let_go(workers)
        self.roster.workers = [worker for worker in self.roster.workers if worker not in workers]
        self.workers.release(workers)
        self.retire(workers)

    def _set_memory(self, pairs: Sized) -> None:
        changed = [(m, size.memory_bytes) for m, size in pairs if size.memory_bytes != m.resources.memory_bytes]
        self.fleet.get([member.actor.set_memory.remote(memory_bytes) for member, memory_bytes in changed])
        for member, memory_bytes in changed:
            member.resize(member.resources.model_copy(update={"memory_bytes": memory_bytes}))

    def _set_cpu(self, pairs: Sized) -> None:
        changed = [(member, size) for member, size in pairs if size != member.resources]
        for member, size in changed:
            member.resize(size)
        self.roster.hold(self.fleet, [member for member, _ in changed])

    def _set_batch_size(self, batch_size: int) -> None:
        self.job = self.job.with_batch_size(batch_size)
        with self.leases.lock:
            self.leases.book.set_batch_size(batch_size)
        self.fleet.get([worker.actor.set_batch_size.remote(batch_size) for worker in self.roster.workers])

    def _room(self, role: Role) -> int:
        """How many idle replicas of a role may be kept."""
        wanted = self.fleet.wanted_in_all.get(role, 0) - len(self.roster.of(role))
        return max(self.fleet.wanted_reserve.get(role, 0), wanted)

    @contextlib.contextmanager
    def _ended_unless_done(self, newcomers: Sequence[Member]) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.fleet.kill(newcomers)
            with contextlib.suppress(SizewrightError):  # some may have begun to train; else once all servers are there
                self.workers.release([member for member in newcomers if member.role == "worker"])
            raise


def _more(memory_bytes: int, than: int) -> bool:
    """Of memory limits, where 0 is none."""
    return (memory_bytes or math.inf) > (than or math.inf)


def _give(members: Sequence[Member], sizes: Sequence[Resources]) -> None:
    for member, size in zip(members, sizes, strict=True):
        member.resize(size)
