"""The replicas that train together, and how their number and size change while they do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sizewright.errors import SizewrightError, TrialTimeoutError
from sizewright.spec import Allocation, Job, Resources, Role
from sizewright.training.fleet import Fleet, Member
from sizewright.training.keeper import KEEPER
from sizewright.training.lease_server import LeaseServer
from sizewright.training.matching import allocation_of, match
from sizewright.training.moving import Moved
from sizewright.training.optimizers import Floats
from sizewright.training.program import Program
from sizewright.training.ps_actor import PsSetup
from sizewright.training.routing import Owners, Routing
from sizewright.training.transport import Transport
from sizewright.training.worker_actor import WorkerSetup

_POLL_S = 0.005
ROLES: tuple[Role, ...] = ("ps", "worker")

Restore = Callable[[Member, Owners, slice, int], None]
"""Gives a server rows of partitions and its dense slice, after which a version begins."""


class Crew:
    """Servers and workers of one session. A change that fails leaves those that trained before training on."""

    def __init__(
        self, job: Job, program: Program, fleet: Fleet, leases: LeaseServer, token: bytes, transport: Transport
    ) -> None:
        self.job, self.program, self.fleet, self.leases = job, program, fleet, leases
        self.servers: list[Member] = []
        self.workers: list[Member] = []
        self.routing: Routing | None = None
        self.scale = 1.0
        self.fill = False
        self.paused = False
        self.first_dense: Floats = np.empty(0, np.float32)
        self.handover = threading.Lock()
        """Held while rows are in two places: a snapshot then might keep the older ones."""
        self.moved: list[Moved] = []
        """What the last move took, server by server."""
        self._token, self._transport = token, transport
        self._joined = 0
        self._versions = 0

    @property
    def members(self) -> list[Member]:
        """All that train, servers first."""
        return [*self.servers, *self.workers]

    @property
    def allocation(self) -> Allocation:
        """What trains now."""
        return allocation_of(_sizes(self.workers), _sizes(self.servers), self.job.training.batch_size)

    def launch(self, allocation: Allocation, scale: float, restore: Restore | None = None) -> None:
        """Start all anew at an allocation, with tables of `scale` times their rows."""
        self.halt()
        self.paused = False
        self.job = self.job.with_batch_size(allocation.batch_size)
        self.leases.book.set_batch_size(allocation.batch_size)
        self.scale = scale
        servers = self._gather("ps", self.servers, list(allocation.each("ps")))
        self.servers = servers
        workers = self._gather("worker", self.workers, list(allocation.each("worker")))
        self.workers = workers
        self.first_dense = self._load(self.members)
        self._open(servers, self.first_dense, restore)
        self._join(workers)
        self._hold(servers)

    def change(self, allocation: Allocation) -> None:
        """Go over to another allocation while training goes on."""
        jobs = self.job.with_batch_size(allocation.batch_size)
        ps = match([(m, _size(m)) for m in self.servers], list(allocation.each("ps")), "ps")
        workers = match([(m, _size(m)) for m in self.workers], list(allocation.each("worker")), "worker")
        new_servers = self.fleet.start("ps", ps.new, leaving=ps.gone)
        new_workers = self._or_kill(new_servers, lambda: self.fleet.start("worker", workers.new, leaving=workers.gone))
        newcomers = [*new_servers, *new_workers]
        with self._ended_unless_done(newcomers):
            self._size(new_servers, ps.new)
            self._size(new_workers, workers.new)
            self._load(newcomers)
            self._remember([(m, s) for m, s in ps.stay if s.memory_bytes != _size(m).memory_bytes], "set_memory")
            if ps.gone or new_servers:
                self._move(_in_place(self.servers, ps.gone, new_servers), new_servers)
                self.retire(ps.gone)
        self.job = jobs
        self._set_batch_size(allocation.batch_size)
        self._join(new_workers)
        self.workers = [*self.workers, *new_workers]
        self._leave(workers.gone)
        self._resize([*ps.stay, *workers.stay])

    def regather(self, allocation: Allocation) -> None:
        """After `pause`: go on with the same servers and other workers."""
        self.paused = False
        self.job = self.job.with_batch_size(allocation.batch_size)
        self.leases.book.set_batch_size(allocation.batch_size)
        self.workers = self._gather("worker", self.workers, list(allocation.each("worker")))
        self._load(self.workers)
        self._join(self.workers)
        self._hold(self.servers)

    def await_steps(self, steps: int) -> None:
        """Wait until every worker has taken so many. Raises TrialTimeoutError when one does not."""
        deadline = time.monotonic() + self.fleet.timeout_s
        while True:
            faults = self.fleet.get([member.actor.fault.remote() for member in self.members])
            if fault := next((fault for fault in faults if fault), None):
                raise self.fleet.died(fault)
            done = [m.steps for m in self.fleet.get([worker.actor.observe.remote() for worker in self.workers])]
            if min(done) >= steps or self.leases.finished.is_set():
                return
            if time.monotonic() > deadline:
                raise TrialTimeoutError(
                    f"No worker finished {steps} steps in {self.fleet.timeout_s:g} s.",
                    "Give the replicas more cores, or the job a smaller batch.",
                )
            time.sleep(0.02)

    def replace(self, old: Member, size: Resources) -> Member:
        """Another process in the place of a replica that trains; returns it."""
        (new,) = self.fleet.start(old.role, [size], leaving=[old])
        with self._ended_unless_done([new]):
            self._size([new], [size])
            self._load([new])
            if old.role == "ps":
                self._move(_in_place(self.servers, [old], [new]), [new])
                self.retire([old])
                return new
        self._join([new])
        self.workers = [*self.workers, new]
        self._leave([old])
        return new

    def restore(self, dead: Sequence[Member], sizes: Sequence[Resources], restore: Restore) -> None:
        """New servers in the places of dead ones, with what `restore` has of their rows."""
        assert self.routing is not None
        new = self.fleet.start("ps", sizes)
        with self._ended_unless_done(new):
            self._size(new, sizes)
            self._load(new)
            servers = _in_place(self.servers, dead, new)
            routing = self._prepare(servers, new, self._slices(len(servers)))
            gone = [member.index + 1 for member in dead]
            ids = {member.index + 1 for member in new}
            calls = [m.actor.begin.remote(routing.version) for m in servers if m.index + 1 not in ids]
            self.fleet.get(calls)
            for member in new:
                number = member.index + 1
                part = (routing.version, {KEEPER}, routing.dense_of(number), self._numbers())
                self.fleet.get([member.actor.expect.remote(*part)])
                restore(member, routing.partitions_of(number), routing.dense_of(number), routing.version)
            self._announce(routing, gone)
        self.servers, self.routing = servers, routing
        self._hold(new)
        self.fleet.kill(dead)

    def put_in_place(self, dead: Sequence[Member]) -> None:
        """New workers of the same sizes for those that have died."""
        self.workers = [member for member in self.workers if member not in dead]
        for member in dead:
            self.fleet.get([server.actor.leave.remote(member.joined) for server in self.servers])
        self.fleet.kill(dead)
        sizes = _sizes(dead)
        new = self.fleet.start("worker", sizes)
        with self._ended_unless_done(new):
            self._size(new, sizes)
            self._load(new)
            self._join(new)
        self.workers = [*self.workers, *new]

    def pause(self) -> None:
        """Everything computed is pushed; workers stay loaded, servers keep their rows."""
        self.paused = True
        self._let_go(self.workers)

    def resume(self) -> None:
        """Go on after `pause`."""
        self.paused = False
        self.rejoin()

    def rejoin(self) -> None:
        """Let workers train again that stopped for a change which then failed."""
        if not self.paused and not self.leases.finished.is_set():
            busy = self.fleet.get([worker.actor.training.remote() for worker in self.workers])
            idle = [worker for worker, trains in zip(self.workers, busy, strict=True) if not trains]
            if idle and not self.leases.finished.is_set():
                self._join(idle)

    def halt(self) -> None:
        """Stop training without care for what is under way."""
        self.fleet.get([worker.actor.halt.remote() for worker in self.workers])
        self.fleet.get([server.actor.close.remote() for server in self.servers])
        self.fleet.get([member.actor.set_cpu.remote(None) for member in self.members])
        self.routing = None

    def retire(self, members: Iterable[Member]) -> None:
        """Replicas that train no more go into the reserve where it has room, else they end."""
        for member in members:
            if self._room(member.role) > len(self.fleet.reserve[member.role]):
                with contextlib.suppress(SizewrightError):  # else it has died
                    self.fleet.get([_idle(member)])
                    self.fleet.keep([member])
                    continue
            self.fleet.kill([member])

    def load_ahead(self, counts: Mapping[Role, int], size: Resources) -> None:
        """Have so many loaded replicas of each role, training or idle, and keep them until the session ends."""
        self.fleet.wanted_in_all = counts
        new = []
        for role, count in counts.items():
            missing = count - len(self._of(role)) - len(self.fleet.reserve[role])
            new += self.fleet.start(role, [size] * max(0, missing), fresh=True)
        self._load(new)
        self.fleet.keep(new)

    def fill_reserve(self) -> None:
        """Start what the reserve lacks, in the background."""
        for role in ROLES:
            missing, present = self.fleet.wanted_reserve.get(role, 0) - len(self.fleet.reserve[role]), self._of(role)
            if missing > 0 and present:
                self.fleet.keep(self.fleet.start(role, [_size(present[0])] * missing, fresh=True))

    def _gather(self, role: Role, present: list[Member], sizes: list[Resources]) -> list[Member]:
        """Members for these sizes: those at hand first."""
        kept, surplus = present[: len(sizes)], present[len(sizes) :]
        del present[len(sizes) :]
        self.retire(surplus)
        members = [*kept, *self.fleet.start(role, sizes[len(kept) :])]
        self._size(members, sizes)
        return members

    def _size(self, members: Sequence[Member], sizes: Sequence[Resources]) -> None:
        for member, size in zip(members, sizes, strict=True):
            member.resources = size

    def _load(self, members: Sequence[Member]) -> Floats:
        """Load libraries; returns the dense weights that training begins with."""
        workers = [member for member in members if member.role == "worker"]
        memory = [m.actor.set_memory.remote(_size(m).memory_bytes) for m in workers]
        self.fleet.get(memory)
        dense = self.fleet.get([worker.actor.load.remote(self.job, self.program) for worker in workers])
        self.fleet.get([m.actor.load.remote() for m in members if m.role == "ps"])
        if not self.fleet.engine.local:
            nodes = self.fleet.get([member.actor.node.remote() for member in members])
            for member, node in zip(members, nodes, strict=True):
                member.node = node
        return dense[0] if dense else np.empty(0, np.float32)

    def _slices(self, count: int) -> list[tuple[int, Floats]]:
        assert self.routing is not None
        edges = [self.routing.edges[-1] * i // count for i in range(count + 1)]
        return [(a, np.zeros(b - a, np.float32)) for a, b in pairwise(edges)]

    def _open(self, servers: Sequence[Member], dense: Floats, restore: Restore | None) -> None:
        """Give the servers their first rows."""
        self._versions += 1
        numbers = [member.index + 1 for member in servers]
        routing = Routing.even(tuple(_stub(number) for number in numbers), dense.size, self._versions)
        setups = []
        for member in servers:
            mine = routing.dense_of(member.index + 1)
            version = 0 if restore else routing.version
            fill = (self.scale, routing.partitions_of(member.index + 1)) if self.fill else None
            setups.append(self._setup(member, len(servers), (mine.start, dense[mine]), version)._replace(fill=fill))
        calls = [m.actor.prepare.remote(setup) for m, setup in zip(servers, setups, strict=True)]
        for member, address in zip(servers, self.fleet.get(calls), strict=True):
            member.address = address
        self.routing = routing._replace(servers=tuple(member.server for member in servers))
        for member in servers if restore else ():
            number = member.index + 1
            self.fleet.get([member.actor.expect.remote(routing.version, {KEEPER}, routing.dense_of(number), set())])
            assert restore is not None
            restore(member, routing.partitions_of(number), routing.dense_of(number), routing.version)

    def _setup(self, member: Member, servers: int, dense: tuple[int, Floats], version: int) -> PsSetup:
        rows = sum(self.job.model.tables.sizes(self.scale)) // servers if self.fill else 0
        return PsSetup(
            job=self.job,
            number=member.index + 1,
            token=self._token,
            host="127.0.0.1" if self.fleet.engine.local else self.fleet.get([member.actor.ip.remote()])[0],
            memory_bytes=_size(member).memory_bytes,
            expected_rows=rows,
            spread=self.program.spread,
            staleness=self.job.training.max_staleness,
            dense=dense[1],
            dense_start=dense[0],
            version=version,
        )

    def _prepare(
        self, servers: Sequence[Member], new: Sequence[Member], slices: Sequence[tuple[int, Floats]]
    ) -> Routing:
        """Open new servers, empty, and make the routing over all."""
        assert self.routing is not None
        setups = [self._setup(member, len(servers), slices[0], 0) for member in new]
        calls = [m.actor.prepare.remote(setup) for m, setup in zip(new, setups, strict=True)]
        for member, address in zip(new, self.fleet.get(calls), strict=True):
            member.address = address
        self._versions += 1
        routing = self.routing.with_servers(tuple(member.server for member in servers))
        return routing._replace(version=self._versions)

    def _move(self, servers: list[Member], new: Sequence[Member]) -> None:
        """Move partitions to where `servers` are to have them; only the last moment stops exchanges."""
        assert self.routing is not None
        target = self._prepare(servers, new, self._slices(len(servers)))
        old, before = list(self.servers), self.routing
        try:
            self._announce(target)
            self._expect(servers, target, {member.index + 1 for member in old})
            self._all([m.actor.copy_to.remote(target) for m in old])
            self._hold(new)  # no newcomer stands back in the last moment
            with self.handover:
                self.moved = self._all([m.actor.finish_copy.remote() for m in old])
                self.servers, self.routing = servers, target
                for ref in [m.actor.settle.remote() for m in servers]:
                    with contextlib.suppress(SizewrightError):  # one that has just died is for recovery to replace
                        self.fleet.get([ref])
        except SizewrightError:
            if self.routing is before:
                self._roll_back(before)
            raise

    def _expect(self, servers: Sequence[Member], target: Routing, sources: set[int]) -> None:
        members = self._numbers()
        self.fleet.get(
            [m.actor.expect.remote(target.version, sources, target.dense_of(m.index + 1), members) for m in servers]
        )

    def _all(self, refs: list[Any]) -> list[Any]:
        """Results once every call has ended, however it did: none may still be at work when a change is called off."""
        self.fleet.ray.wait(refs, num_returns=len(refs), timeout=self.fleet.timeout_s)
        return self.fleet.get(refs)

    def _roll_back(self, routing: Routing) -> None:
        """Servers that still live go on as before; the dead are for recovery to replace."""
        self._versions += 1
        self.routing = routing._replace(version=self._versions)
        for member in self.servers:
            with contextlib.suppress(SizewrightError):
                self.fleet.get([member.actor.roll_back.remote(self.routing)])
        self._announce(self.routing)

    def _announce(self, routing: Routing, gone: Sequence[int] = ()) -> None:
        for worker in self.workers:
            with contextlib.suppress(SizewrightError):  # one that has died is for recovery to replace
                self.fleet.get([worker.actor.announce.remote(routing, gone)])

    def _join(self, workers: Sequence[Member]) -> None:
        assert self.routing is not None
        present = [member for member in self.members if member not in workers]
        cores = _first_cores([*present, *workers])
        setups = []
        for worker in workers:
            self._joined += 1
            worker.joined = self._joined
            setups.append(
                WorkerSetup(
                    self.job, self.program, self.scale, worker.joined, self.routing, self._transport,
                    self.leases.address, self._token, _size(worker).cpu, cores[worker],
                )
            )  # fmt: skip
        self.fleet.get([w.actor.start.remote(setup) for w, setup in zip(workers, setups, strict=True)])

    def _let_go(self, workers: Sequence[Member]) -> None:
        """Wait until workers have left. Raises when a server dies on the way: they wait for its successor then."""
        self.fleet.get([worker.actor.leave.remote() for worker in workers])
        deadline = time.monotonic() + self.fleet.timeout_s
        while any(self.fleet.get([worker.actor.training.remote() for worker in workers])):
            self.fleet.get([server.actor.pid.remote() for server in self.servers])
            if time.monotonic() > deadline:
                raise TrialTimeoutError(f"A worker did not end its step in {self.fleet.timeout_s:g} s.", "Try again.")
            time.sleep(_POLL_S)
        self.fleet.get([worker.actor.end.remote() for worker in workers])

    def _leave(self, workers: Sequence[Member]) -> None:
        self._let_go(workers)
        self.workers = [worker for worker in self.workers if worker not in workers]
        for worker in workers:
            self.fleet.get([server.actor.leave.remote(worker.joined) for server in self.servers])
        self.retire(workers)

    def _hold(self, members: Sequence[Member]) -> None:
        """Put CPU limits on."""
        first = _first_cores([*self.members, *(member for member in members if member not in self.members)])
        self.fleet.get([m.actor.set_cpu.remote(_size(m).cpu, first[m]) for m in members])

    def _resize(self, pairs: Sequence[tuple[Member, Resources]]) -> None:
        changed = [(m, size) for m, size in pairs if size != _size(m)]
        self._remember([(m, s) for m, s in changed if s.memory_bytes != _size(m).memory_bytes], "set_memory")
        for member, size in changed:
            member.resources = size
        self._hold([member for member, _ in changed])

    def _remember(self, pairs: Sequence[tuple[Member, Resources]], method: str) -> None:
        self.fleet.get([getattr(member.actor, method).remote(size.memory_bytes) for member, size in pairs])
        for member, size in pairs:
            member.resources = _size(member).model_copy(update={"memory_bytes": size.memory_bytes})

    def _set_batch_size(self, batch_size: int) -> None:
        with self.leases.lock:
            self.leases.book.set_batch_size(batch_size)
        self.fleet.get([worker.actor.set_batch_size.remote(batch_size) for worker in self.workers])

    def _numbers(self) -> set[int]:
        return {worker.joined for worker in self.workers}

    def _of(self, role: Role) -> list[Member]:
        return self.servers if role == "ps" else self.workers

    def _room(self, role: Role) -> int:
        """How many idle replicas of a role may be kept."""
        return max(self.fleet.wanted_reserve.get(role, 0), self.fleet.wanted_in_all.get(role, 0) - len(self._of(role)))

    def _or_kill(self, members: Sequence[Member], start: Callable[[], list[Member]]) -> list[Member]:
        with self._ended_unless_done(members):
            return start()

    @contextlib.contextmanager
    def _ended_unless_done(self, newcomers: Sequence[Member]) -> Any:
        try:
            yield
        except BaseException:
            self.fleet.kill(newcomers)
            raise


def _idle(member: Member) -> Any:
    return member.actor.discard.remote() if member.role == "ps" else member.actor.set_cpu.remote(None)


def _size(member: Member) -> Resources:
    assert member.resources is not None
    return member.resources


def _sizes(members: Iterable[Member]) -> list[Resources]:
    return [_size(member) for member in members]


def _first_cores(members: Iterable[Member]) -> dict[Member, int]:
    """Where replicas can be held to whole cores only, these are counted from the first of each machine."""
    taken: dict[str, float] = {}
    first = {}
    for member in members:
        first[member] = int(taken.get(member.node, 0.0))
        taken[member.node] = taken.get(member.node, 0.0) + _size(member).cpu
    return first


def _in_place(servers: Sequence[Member], gone: Sequence[Member], new: Sequence[Member]) -> list[Member]:
    """Newcomers in the places of those that go, further ones at the end."""
    heirs = dict(zip(gone, new, strict=False))
    kept = [heirs.get(member, member) for member in servers if member in heirs or member not in gone]
    return [*kept, *new[len(gone) :]]


def _stub(number: int) -> Any:
    from sizewright.training.routing import Server

    return Server(number, ("", 0))
