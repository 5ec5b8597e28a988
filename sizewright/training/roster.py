"""Who trains in a session: its servers, in the order of the routing, and its workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sizewright.spec import Allocation, Role
from sizewright.training.fleet import Fleet, Member
from sizewright.training.matching import allocation_of


@dataclass
class Roster:
    """Both roles; replicas in the reserve are not in it."""

    servers: list[Member] = field(default_factory=list)
    workers: list[Member] = field(default_factory=list)

    @property
    def members(self) -> list[Member]:
        """All that train, servers first."""
        return [*self.servers, *self.workers]

    def of(self, role: Role) -> list[Member]:
        """Those of a role."""
        return self.servers if role == "ps" else self.workers

    def allocation(self, batch_size: int) -> Allocation:
        """What they have."""
        return allocation_of([m.resources for m in self.workers], [m.resources for m in self.servers], batch_size)

    def joined(self) -> set[int]:
        """The numbers under which the workers train."""
        return {worker.joined for worker in self.workers}

    def hold(self, fleet: Fleet, members: Sequence[Member]) -> None:
        """Put CPU limits on members, which need not be in the roster yet."""
        first = self.first_cores(members)
        fleet.get([m.actor.set_cpu.remote(m.resources.cpu, first[m]) for m in members])

    def first_cores(self, newcomers: Iterable[Member]) -> dict[Member, int]:
        """Where replicas can be held to whole cores only, these are counted from the first of each machine."""
        taken: dict[str, float] = {}
        first = {}
        for member in [*self.members, *(member for member in newcomers if member not in self.members)]:
            first[member] = int(taken.get(member.node, 0.0))
            taken[member.node] = taken.get(member.node, 0.0) + member.resources.cpu
        return first
