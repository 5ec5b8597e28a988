"""The replicas of a session, whose number and size change while they train."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from sizewright.errors import EngineError, SizewrightError, TrialTimeoutError
from sizewright.spec import Allocation, Job, Resources, Role
from sizewright.training.leases.lease_server import LeaseServer
from sizewright.training.program import Program
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import Routing
from sizewright.training.ps.server_group import FillServer, ServerGroup, in_place
from sizewright.training.ray.actor_pool import ActorPool, ReplicaHandle
from sizewright.training.replicas.matching import match
from sizewright.training.replicas.membership import Membership
from sizewright.training.transport.links import Transport
from sizewright.training.worker.worker_group import WorkerGroup

ROLES: tuple[Role, ...] = ("ps", "worker")
Sized = Sequence[tuple[ReplicaHandle, Resources]]


class ReplicaGroup:
    """The servers and workers of one session. If a change fails, the previous replicas continue to train."""

    def __init__(
        self, job: Job, program: Program, pool: ActorPool, lease_server: LeaseServer, token: bytes, transport: Transport
    ) -> None:
        self.job = job
        self.program = program
        self.pool = pool
        self.lease_server = lease_server
        self.membership = Membership()
        self.servers = ServerGroup(job, program, pool, self.membership, token)
        self.workers = WorkerGroup(program, pool, self.membership, lease_server, token, transport)
        self.on_retire: Callable[[ReplicaHandle], None] = lambda _: None
        """Called with each replica that no longer trains, before it is reused or ended."""
        self.paused = False
        self.first_dense: Floats = np.empty(0, np.float32)

    @property
    def routing(self) -> Routing | None:
        """The current routing; None before the first launch and after `end`."""
        return self.servers.routing

    @property
    def allocation(self) -> Allocation:
        """The current allocation."""
        return self.membership.allocation(self.job.training.batch_size)

    def launch(self, allocation: Allocation, scale: float, fill_server: FillServer | None = None) -> None:
        """Start training from scratch at an allocation, with tables of `scale` times their rows."""
        self.halt()
        self._begin_at(allocation)
        self.servers.scale = scale
        self._gather("ps", allocation)
        self._gather("worker", allocation)
        self.first_dense = self._load(self.membership.members)
        self.servers.open(self.first_dense, fill_server)
        self._join(self.membership.workers)
        self.membership.hold(self.pool, self.membership.servers)

    def change(self, allocation: Allocation) -> None:
        """Change to another allocation while training goes on."""
        ps = match([(m, m.resources) for m in self.membership.servers], list(allocation.each("ps")), "ps")
        workers = match([(m, m.resources) for m in self.membership.workers], list(allocation.each("worker")), "worker")
        new_servers = self.pool.start("ps", ps.new, leaving=ps.gone)
        with self._ended_unless_done(new_servers):
            new_workers = self.pool.start("worker", workers.new, leaving=workers.gone)
        newcomers = [*new_servers, *new_workers]
        with self._ended_unless_done(newcomers):
            _give(newcomers, [*ps.new, *workers.new])
            self._load(newcomers)
            growing = [(m, size) for m, size in ps.stay if _more(size.memory_bytes, m.resources.memory_bytes)]
            self._set_memory(growing)
            if ps.gone or new_servers:
                self.servers.move(in_place(self.membership.servers, ps.gone, new_servers), new_servers)
        with self._ended_unless_done(new_workers):
            self.retire(ps.gone)
            self._set_batch_size(allocation.batch_size)
            self._join(new_workers)
        self.membership.workers += new_workers
        self._leave(workers.gone)
        self._set_memory([*ps.stay, *workers.stay])  # less only now that rows have left
        self._set_cpu([*ps.stay, *workers.stay])

    def regather(self, allocation: Allocation) -> None:
        """Continue after `pause` with the same servers and the workers of another allocation."""
        self._begin_at(allocation)
        self.workers.remove(self.membership.workers)
        self._gather("worker", allocation)
        self._load(self.membership.workers)
        self._join(self.membership.workers)
        self.membership.hold(self.pool, self.membership.servers)

    def await_steps(self, steps: int) -> None:
        """Wait until every worker has taken `steps`. Raise TrialTimeoutError if one does not."""
        deadline = time.monotonic() + self.pool.timeout_s
        while True:
            faults = self.pool.get([member.actor.fault.remote() for member in self.membership.members])
            if fault := next((fault for fault in faults if fault), None):
                raise self.pool.died(fault)
            done = [m.steps for m in self.pool.get([w.actor.observe.remote() for w in self.membership.workers])]
            if min(done) >= steps or self.lease_server.finished.is_set():
                return
            if time.monotonic() > deadline:
                raise TrialTimeoutError(
                    f"Not all workers finished {steps} steps within {self.pool.timeout_s:g} s.",
                    "Give the replicas more cores, or the job a smaller batch.",
                )
            time.sleep(0.02)

    def replace(self, old: ReplicaHandle) -> ReplicaHandle:
        """Replace a member by a new process, and return it."""
        (new,) = self.pool.start(old.role, [old.resources], leaving=[old])
        with self._ended_unless_done([new]):
            _give([new], [old.resources])
            self._load([new])
            if old.role == "ps":
                self.servers.move(in_place(self.membership.servers, [old], [new]), [new])
            else:
                self._join([new])
        if old.role == "ps":
            self.retire([old])
        else:
            self.membership.workers.append(new)
            self._leave([old])
        return new

    def rebalance(self) -> None:
        """Balance the look-ups of the servers while training goes on."""
        if len(self.membership.servers) < 2:
            raise EngineError("The job has one PS, which serves all look-ups.", "Scale it to two PS or more first.")
        self.servers.rebalance()

    def replace_dead_servers(
        self, dead: Sequence[ReplicaHandle], sizes: Sequence[Resources], fill_server: FillServer
    ) -> list[ReplicaHandle]:
        """Replace dead servers by new ones, with the rows that `fill_server` sends them; return the new ones."""
        self.pool.kill(dead)  # first, since a server that merely hangs must not go on
        new = self.pool.start("ps", sizes)
        with self._ended_unless_done(new):
            _give(new, sizes)
            self._load(new)
            self.servers.replace_dead(dead, new, fill_server)
        self.membership.hold(self.pool, new)
        return new

    def replace_dead_workers(self, dead: Sequence[ReplicaHandle]) -> None:
        """Replace dead workers by new ones of the same sizes."""
        self.pool.kill(dead)
        self.workers.remove(dead)
        sizes = [member.resources for member in dead]
        new = self.pool.start("worker", sizes)
        with self._ended_unless_done(new):
            _give(new, sizes)
            self._load(new)
            self._join(new)
        self.membership.workers = [*(member for member in self.membership.workers if member not in dead), *new]

    def pause(self) -> None:
        """Stop training after all gradients are pushed; workers stay loaded, and servers keep their rows."""
        self.paused = True
        try:
            self.workers.let_go(self.membership.workers)
        except BaseException:
            self.paused = False
            raise

    def resume(self) -> None:
        """Continue after `pause`."""
        self.paused = False
        self.rejoin()

    def rejoin(self) -> None:
        """Restart workers that stopped for a change which then failed."""
        if not self.paused and not self.lease_server.finished.is_set():
            workers = self.membership.workers
            answers = self.pool.get([worker.actor.is_idle.remote() for worker in workers])
            idle = [worker for worker, is_idle in zip(workers, answers, strict=True) if is_idle]
            if idle and not self.lease_server.finished.is_set():
                self.workers.remove(idle)  # they get new numbers
                self._join(idle)

    def halt(self) -> None:
        """Stop training at once, without finishing steps."""
        self.pool.get([worker.actor.halt.remote() for worker in self.membership.workers])
        self.pool.get([server.actor.close.remote() for server in self.membership.servers])
        for worker in self.membership.workers:
            self.lease_server.release(worker.joined, [])
        self.pool.get([member.actor.set_cpu.remote(None) for member in self.membership.members])
        self.servers.routing = None

    def end(self) -> None:
        """End all members; the untrained samples of their workers are leased again."""
        self.pool.kill(self.membership.members)
        for worker in self.membership.workers:
            self.lease_server.release(worker.joined, [])
        self.membership.servers = []
        self.membership.workers = []
        self.servers.routing = None

    def retire(self, members: Iterable[ReplicaHandle]) -> None:
        """Put replicas that no longer train into the reserve if it has room, otherwise end them."""
        for member in members:
            self.on_retire(member)
            if self._room(member.role) > len(self.pool.reserve[member.role]):
                with contextlib.suppress(SizewrightError):  # else it has died
                    self.pool.get([member.actor.set_cpu.remote(None)])
                    if member.role == "ps":
                        self.pool.get([member.actor.drain.remote()])
                        self.pool.get([member.actor.discard.remote()])
                    self.pool.keep([member])
                    continue
            elif member.role == "ps":
                with contextlib.suppress(SizewrightError):
                    self.pool.get([member.actor.drain.remote()])
            self.pool.kill([member])

    def load_ahead(self, counts: Mapping[Role, int], size: Resources) -> None:
        """Load replicas up to these counts by role, including members, and keep them until the session ends."""
        self.pool.requested_replicas = counts
        new = []
        for role, count in counts.items():
            missing = count - len(self.membership.of(role)) - len(self.pool.reserve[role])
            new += self.pool.start(role, [size] * max(0, missing), fresh=True)
        self._load(new)
        self.pool.keep(new)

    def fill_reserve(self) -> None:
        """Start and load replicas that the reserve lacks, in the background."""
        for role in ROLES:
            missing = self.pool.requested_reserve.get(role, 0) - len(self.pool.reserve[role])
            present = self.membership.of(role)
            if missing > 0 and present:
                new = self.pool.start(role, [present[0].resources] * missing, fresh=True)
                for member in new:
                    member.actor.load.remote(self.job, self.program)
                self.pool.keep(new)

    def _begin_at(self, allocation: Allocation) -> None:
        self.paused = False
        self.job = self.job.with_batch_size(allocation.batch_size)
        with self.lease_server.lock:
            self.lease_server.leases.set_batch_size(allocation.batch_size)

    def _gather(self, role: Role, allocation: Allocation) -> None:
        """Choose the members for an allocation, current ones first."""
        present, sizes = self.membership.of(role), list(allocation.each(role))
        surplus = present[len(sizes) :]
        del present[len(sizes) :]
        self.retire(surplus)
        present += self.pool.start(role, sizes[len(present) :])
        _give(present, sizes)

    def _load(self, members: Sequence[ReplicaHandle]) -> Floats:
        """Load libraries, and return the dense weights that training begins with."""
        workers = [member for member in members if member.role == "worker"]
        self.pool.get([m.actor.set_memory.remote(m.resources.memory_bytes) for m in workers])
        loaded = self.pool.get([member.actor.load.remote(self.job, self.program) for member in members])
        dense = [weights for weights in loaded if weights is not None]
        pids = self.pool.get([member.actor.pid.remote() for member in members])
        for member, pid in zip(members, pids, strict=True):
            member.pid = pid
        if not self.pool.engine.local:
            nodes = self.pool.get([member.actor.node.remote() for member in members])
            for member, node in zip(members, nodes, strict=True):
                member.node = node
        return dense[0] if dense else np.empty(0, np.float32)

    def _join(self, workers: Sequence[ReplicaHandle]) -> None:
        assert self.routing is not None
        self.workers.join(workers, self.job, self.servers.scale, self.routing)

    def _leave(self, workers: Sequence[ReplicaHandle]) -> None:
        self.workers.let_go(workers)
        self.membership.workers = [worker for worker in self.membership.workers if worker not in workers]
        self.workers.remove(workers)
        self.retire(workers)

    def _set_memory(self, pairs: Sized) -> None:
        changed = [(m, size.memory_bytes) for m, size in pairs if size.memory_bytes != m.resources.memory_bytes]
        self.pool.get([member.actor.set_memory.remote(memory_bytes) for member, memory_bytes in changed])
        for member, memory_bytes in changed:
            member.resize(member.resources.model_copy(update={"memory_bytes": memory_bytes}))

    def _set_cpu(self, pairs: Sized) -> None:
        changed = [(member, size) for member, size in pairs if size != member.resources]
        for member, size in changed:
            member.resize(size)
        self.membership.hold(self.pool, [member for member, _ in changed])

    def _set_batch_size(self, batch_size: int) -> None:
        self.job = self.job.with_batch_size(batch_size)
        with self.lease_server.lock:
            self.lease_server.leases.set_batch_size(batch_size)
        self.pool.get([worker.actor.set_batch_size.remote(batch_size) for worker in self.membership.workers])

    def _room(self, role: Role) -> int:
        """Return how many idle replicas of a role may be kept."""
        missing = self.pool.requested_replicas.get(role, 0) - len(self.membership.of(role))
        return max(self.pool.requested_reserve.get(role, 0), missing)

    @contextlib.contextmanager
    def _ended_unless_done(self, newcomers: Sequence[ReplicaHandle]) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.pool.kill(newcomers)
            with contextlib.suppress(SizewrightError):  # some may have begun to train; else once all servers are there
                self.workers.remove([member for member in newcomers if member.role == "worker"])
            raise


def _more(memory_bytes: int, than: int) -> bool:
    """Compare memory limits, where 0 means no limit."""
    return (memory_bytes or math.inf) > (than or math.inf)


def _give(members: Sequence[ReplicaHandle], sizes: Sequence[Resources]) -> None:
    for member, size in zip(members, sizes, strict=True):
        member.resize(size)
