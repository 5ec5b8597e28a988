"""The servers of a session: which rows each holds, and how rows move while training goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sizewright.errors import SizewrightError
from sizewright.spec import Job
from sizewright.training.fleet import Fleet, Member
from sizewright.training.optimizers import Floats
from sizewright.training.program import Program
from sizewright.training.ps.snapshot_store import SNAPSHOT_STORE
from sizewright.training.ps_actor import PsSetup
from sizewright.training.roster import Roster
from sizewright.training.routing import PARTITIONS, Loads, Parts, Routing, Server, likely_loads
from sizewright.training.transport.exchange import NO_FLOATS

Restore = Callable[[Member, Parts, slice, int], None]
"""Gives a server what is kept of its parts and of its dense slice, after which a version begins."""
# Fewer say less of the partitions than what is known of them already.
_ENOUGH_LOOKUPS = 2 * PARTITIONS


class PsTeam:
    """Holds the routing and announces it to the workers."""

    def __init__(self, job: Job, program: Program, fleet: Fleet, roster: Roster, token: bytes) -> None:
        self.routing: Routing | None = None
        self.scale = 1.0
        """Of the tables."""
        self.fill = False
        """Whether tables are filled with their rows before training."""
        self.handover = threading.Lock()
        """Held while rows change hands."""
        self._job, self._program, self._fleet, self._roster, self._token = job, program, fleet, roster, token
        self._versions = 0
        self._loads: Loads | None = None  # by which the routing is even; without any, by the count of partitions

    def open(self, dense: Floats, restore: Restore | None) -> None:
        """Give the servers their first rows."""
        servers = self._roster.servers
        self._versions += 1
        routing = Routing.even(tuple(Server(m.index + 1, ("", 0)) for m in servers), dense.size, self._versions)
        setups = []
        for member in servers:
            mine = routing.dense_of(member.index + 1)
            setup = self._setup(member, len(servers), routing)
            setup = setup._replace(dense_start=mine.start, dense=dense[mine], fill=self.scale if self.fill else None)
            if restore is None:
                setup = setup._replace(version=routing.version, parts=routing.parts_of(member.index + 1))
            setups.append(setup)
        self._listen(servers, setups)
        self._loads = None
        self.routing = routing._replace(servers=tuple(member.server for member in servers))
        for member in servers if restore else ():
            assert restore is not None
            self._restore(member, routing, set(), restore)

    def restore(self, dead: Sequence[Member], new: Sequence[Member], restore: Restore) -> None:
        """Newcomers take the places of dead servers, with what `restore` has of their rows."""
        assert self.routing is not None
        servers = in_place(self._roster.servers, dead, new)
        self._listen(new, [self._setup(member, len(servers), self.routing) for member in new])
        routing = self._next(self.routing._replace(servers=tuple(member.server for member in servers)))
        self._fleet.get([m.actor.begin.remote(routing.version) for m in servers if m not in new])
        for member in new:
            self._restore(member, routing, self._roster.joined(), restore)
        self.announce(routing, [member.index + 1 for member in dead])
        self._roster.servers, self.routing = servers, routing

    def rebalance(self) -> None:
        """Move partitions until each server has as many look-ups, going by those of late."""
        assert self.routing is not None
        servers = list(self._roster.servers)
        counted = np.sum(self._fleet.get([m.actor.partition_lookups.remote() for m in servers]), axis=0)
        known = self._loads is not None and counted.sum() < _ENOUGH_LOOKUPS
        self.move(servers, [], None if known else likely_loads(counted, self.routing.owners))

    def move(self, servers: list[Member], new: Sequence[Member], loads: Loads | None = None) -> None:
        """Move partitions to where `servers` are to have them; only the last moment stops exchanges.

        Shares are equal by `loads`, and without any by the last ones.
        """
        assert self.routing is not None
        loads = self._loads if loads is None else loads
        target = self._prepare(servers, new, loads)
        old, before = list(self._roster.servers), self.routing
        with self._called_off_unless_done(before):
            self.announce(target)
            self._expect(servers, target, {member.index + 1 for member in old})
            copied = [m.actor.copy_to.remote(target) for m in old]
            self._fleet.get_all(copied, lambda: [m.actor.copied_bytes.remote() for m in old])
            self._roster.hold(self._fleet, new)  # no newcomer stands back in the last moment
        with self.handover, self._called_off_unless_done(before):
            self._fleet.get_all([m.actor.finish_copy.remote() for m in old])
            self._roster.servers, self.routing, self._loads = servers, target, loads
            for ref in [m.actor.settle.remote() for m in servers]:
                with contextlib.suppress(SizewrightError):  # one that has just died is for recovery to replace
                    self._fleet.get([ref])

    def announce(self, routing: Routing, gone: Sequence[int] = ()) -> None:
        """Tell the workers of a routing, and which servers have died."""
        for worker in self._roster.workers:
            with contextlib.suppress(SizewrightError):  # one that has died is for recovery to replace
                self._fleet.get([worker.actor.announce.remote(routing, gone)])

    def _restore(self, member: Member, routing: Routing, workers: set[int], restore: Restore) -> None:
        dense, parts = routing.dense_of(member.index + 1), routing.parts_of(member.index + 1)
        self._fleet.get([member.actor.expect.remote(routing.version, {SNAPSHOT_STORE}, dense, parts, workers)])
        restore(member, parts, dense, routing.version)

    def _prepare(self, servers: Sequence[Member], new: Sequence[Member], loads: Loads | None) -> Routing:
        """Open new servers, empty, and make the routing over all."""
        assert self.routing is not None
        self._listen(new, [self._setup(member, len(servers), self.routing) for member in new])
        return self._next(self.routing.with_servers(tuple(member.server for member in servers), loads))

    def _next(self, routing: Routing) -> Routing:
        self._versions += 1
        return routing._replace(version=self._versions)

    def _listen(self, servers: Sequence[Member], setups: Sequence[PsSetup]) -> None:
        calls = [m.actor.prepare.remote(setup) for m, setup in zip(servers, setups, strict=True)]
        for member, address in zip(servers, self._fleet.get(calls), strict=True):
            member.address = address

    def _setup(self, member: Member, servers: int, routing: Routing) -> PsSetup:
        """Of a newcomer, that holds nothing yet."""
        rows = sum(self._job.model.tables.sizes(self.scale)) // servers if self.fill else 0
        return PsSetup(
            job=self._job,
            number=member.index + 1,
            token=self._token,
            host="127.0.0.1" if self._fleet.engine.local else self._fleet.get([member.actor.ip.remote()])[0],
            memory_bytes=member.resources.memory_bytes,
            expected_rows=rows,
            spread=self._program.spread,
            staleness=self._job.training.max_staleness,
            dense=NO_FLOATS,
            dense_start=0,
            dense_total=routing.edges[-1],
            parts=np.empty(0, np.int64),
        )

    def _expect(self, servers: Sequence[Member], target: Routing, sources: set[int]) -> None:
        workers, asked = self._roster.joined(), []
        for m in servers:
            dense, parts = target.dense_of(m.index + 1), target.parts_of(m.index + 1)
            asked.append(m.actor.expect.remote(target.version, sources, dense, parts, workers))
        self._fleet.get(asked)

    @contextlib.contextmanager
    def _called_off_unless_done(self, before: Routing) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self.routing is before:
                self._roll_back(before)
            raise

    def _roll_back(self, routing: Routing) -> None:
        """Servers that still live go on as before; the dead are for recovery to replace."""
        self.routing = self._next(routing)
        for ref in [member.actor.roll_back.remote(self.routing) for member in self._roster.servers]:
            with contextlib.suppress(SizewrightError):
                self._fleet.get([ref])
        self.announce(self.routing)


def in_place(servers: Sequence[Member], gone: Sequence[Member], new: Sequence[Member]) -> list[Member]:
    """Newcomers in the places of those that go, further ones at the end."""
    heirs = dict(zip(gone, new, strict=False))
    kept = [heirs.get(member, member) for member in servers if member in heirs or member not in gone]
    return [*kept, *new[len(gone) :]]
