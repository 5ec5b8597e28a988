"""Runs in the session's process. Holds the routing of the servers, and changes it while training goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sizewright.errors import SizewrightError
from sizewright.spec import Job
from sizewright.training.program import Program
from sizewright.training.ps.actor import PsSetup
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import PARTITIONS, Loads, Parts, Routing, Server, likely_loads
from sizewright.training.ps.snapshot_store import SNAPSHOT_STORE
from sizewright.training.ray.actor_pool import ActorPool, ReplicaHandle
from sizewright.training.replicas.membership import Membership
from sizewright.training.transport.exchange import NO_FLOATS

FillServer = Callable[[ReplicaHandle, Parts, slice, int], None]
"""Sends a server the snapshot of its parts and its dense slice, after which a version begins."""
# With fewer look-ups, the loads that are known already are better estimates.
_MIN_LOOKUPS = 2 * PARTITIONS


class ServerGroup:
    """Holds the routing and announces it to the workers."""

    def __init__(self, job: Job, program: Program, pool: ActorPool, membership: Membership, token: bytes) -> None:
        self.routing: Routing | None = None
        self.scale = 1.0
        """The scale of the tables."""
        self.fill = False
        """If true, tables are filled with their rows before training."""
        self.handover = threading.Lock()
        """Held while servers hand over rows."""
        self._job = job
        self._program = program
        self._pool = pool
        self._membership = membership
        self._token = token
        self._versions = 0
        self._loads: Loads | None = None  # the loads that the routing balances; None: the number of partitions

    def open(self, dense: Floats, fill_server: FillServer | None) -> None:
        """Prepare the servers with the first dense weights, or with what `fill_server` sends them."""
        servers = self._membership.servers
        self._versions += 1
        routing = Routing.even(tuple(Server(m.index + 1, ("", 0)) for m in servers), dense.size, self._versions)
        setups = []
        for member in servers:
            part = routing.dense_of(member.index + 1)
            setup = self._setup(member, len(servers), routing)
            setup = setup._replace(dense_start=part.start, dense=dense[part], fill=self.scale if self.fill else None)
            if fill_server is None:
                setup = setup._replace(version=routing.version, parts=routing.parts_of(member.index + 1))
            setups.append(setup)
        self._listen(servers, setups)
        self._loads = None
        self.routing = routing._replace(servers=tuple(member.server for member in servers))
        for member in servers if fill_server else ():
            assert fill_server is not None
            self._fill(member, routing, set(), fill_server)

    def replace_dead(
        self, dead: Sequence[ReplicaHandle], new: Sequence[ReplicaHandle], fill_server: FillServer
    ) -> None:
        """Put new servers in the places of dead ones, with the rows that `fill_server` sends them."""
        assert self.routing is not None
        servers = in_place(self._membership.servers, dead, new)
        self._listen(new, [self._setup(member, len(servers), self.routing) for member in new])
        routing = self._next(self.routing._replace(servers=tuple(member.server for member in servers)))
        self._pool.get([m.actor.start_version.remote(routing.version) for m in servers if m not in new])
        for member in new:
            self._fill(member, routing, self._membership.joined(), fill_server)
        self.announce(routing, [member.index + 1 for member in dead])
        self._membership.servers, self.routing = servers, routing

    def rebalance(self) -> None:
        """Move partitions so that all servers have equally many look-ups, judged by recent counts."""
        assert self.routing is not None
        servers = list(self._membership.servers)
        counted = np.sum(self._pool.get([m.actor.partition_lookups.remote() for m in servers]), axis=0)
        if self._loads is not None and counted.sum() < _MIN_LOOKUPS:
            self.move(servers, [])
        else:
            self.move(servers, [], likely_loads(counted, self.routing.owners))

    def move(self, servers: list[ReplicaHandle], new: Sequence[ReplicaHandle], loads: Loads | None = None) -> None:
        """Move partitions to `servers`, some of them `new`; exchanges stop only for the last moment.

        The shares balance `loads`, by default the last ones.
        """
        assert self.routing is not None
        loads = self._loads if loads is None else loads
        self._listen(new, [self._setup(member, len(servers), self.routing) for member in new])
        target = self._next(self.routing.with_servers(tuple(member.server for member in servers), loads))
        old = list(self._membership.servers)
        previous = self.routing
        with self._rolled_back_on_error(previous):
            self.announce(target)
            self._expect(servers, target, {member.index + 1 for member in old})
            copied = [m.actor.copy_to.remote(target) for m in old]
            self._pool.get_all(copied, lambda: [m.actor.copied_bytes.remote() for m in old])
            self._membership.hold(self._pool, new)  # new servers have their full CPU share in the last moment
        with self.handover, self._rolled_back_on_error(previous):
            self._pool.get_all([m.actor.finish_copy.remote() for m in old])
            self._membership.servers = servers
            self.routing = target
            self._loads = loads
            for ref in [m.actor.free_moved_rows.remote() for m in servers]:
                with contextlib.suppress(SizewrightError):  # recovery replaces a server that has just died
                    self._pool.get([ref])

    def announce(self, routing: Routing, gone: Sequence[int] = ()) -> None:
        """Announce a routing to the workers, and which servers have died."""
        for worker in self._membership.workers:
            with contextlib.suppress(SizewrightError):  # recovery replaces a worker that has died
                self._pool.get([worker.actor.announce.remote(routing, gone)])

    def _fill(self, member: ReplicaHandle, routing: Routing, workers: set[int], fill_server: FillServer) -> None:
        dense, parts = routing.dense_of(member.index + 1), routing.parts_of(member.index + 1)
        self._pool.get([member.actor.expect.remote(routing.version, {SNAPSHOT_STORE}, dense, parts, workers)])
        fill_server(member, parts, dense, routing.version)

    def _next(self, routing: Routing) -> Routing:
        self._versions += 1
        return routing._replace(version=self._versions)

    def _listen(self, servers: Sequence[ReplicaHandle], setups: Sequence[PsSetup]) -> None:
        calls = [m.actor.prepare.remote(setup) for m, setup in zip(servers, setups, strict=True)]
        for member, address in zip(servers, self._pool.get(calls), strict=True):
            member.address = address

    def _setup(self, member: ReplicaHandle, servers: int, routing: Routing) -> PsSetup:
        """Return the setup of a new server, which holds nothing yet."""
        sizes = self._job.model.tables.sizes(self.scale)
        groups = self._job.model.table_groups
        rows = tuple(sum(sizes[i] for i in group.tables) // servers if self.fill else 0 for group in groups)
        return PsSetup(
            job=self._job,
            number=member.index + 1,
            token=self._token,
            host="127.0.0.1" if self._pool.engine.local else self._pool.get([member.actor.ip.remote()])[0],
            memory_bytes=member.resources.memory_bytes,
            expected_rows=rows,
            init_scale=self._program.init_scale,
            staleness=self._job.training.max_staleness,
            dense=NO_FLOATS,
            dense_start=0,
            dense_total=routing.edges[-1],
            parts=np.empty(0, np.int64),
        )

    def _expect(self, servers: Sequence[ReplicaHandle], target: Routing, sources: set[int]) -> None:
        workers = self._membership.joined()
        refs = []
        for m in servers:
            dense, parts = target.dense_of(m.index + 1), target.parts_of(m.index + 1)
            refs.append(m.actor.expect.remote(target.version, sources, dense, parts, workers))
        self._pool.get(refs)

    @contextlib.contextmanager
    def _rolled_back_on_error(self, previous: Routing) -> Iterator[None]:
        """Let the servers go on with the previous routing if the change fails before it is complete."""
        try:
            yield
        except BaseException:
            if self.routing is previous:
                self.routing = self._next(previous)
                for ref in [member.actor.roll_back.remote(self.routing) for member in self._membership.servers]:
                    with contextlib.suppress(SizewrightError):  # recovery replaces a server that has died
                        self._pool.get([ref])
                self.announce(self.routing)
            raise


def in_place(
    servers: Sequence[ReplicaHandle], gone: Sequence[ReplicaHandle], new: Sequence[ReplicaHandle]
) -> list[ReplicaHandle]:
    """Return the servers with new ones in the places of those that are gone, and further new ones at the end."""
    successors = dict(zip(gone, new, strict=False))
    present = [successors.get(member, member) for member in servers if member in successors or member not in gone]
    return [*present, *new[len(gone) :]]
