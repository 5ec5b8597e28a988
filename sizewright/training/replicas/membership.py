"""The members of a session: its servers, in the order of the routing, and its workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sizewright.spec import Allocation, Role
from sizewright.training.ray.actor_pool import ActorPool, ReplicaHandle
from sizewright.training.replicas.matching import allocation_of


@dataclass
class Membership:
    """The replicas that train; idle ones in the reserve are not members."""

    servers: list[ReplicaHandle] = field(default_factory=list)
    workers: list[ReplicaHandle] = field(default_factory=list)

    @property
    def members(self) -> list[ReplicaHandle]:
        """All members, servers first."""
        return [*self.servers, *self.workers]

    def of(self, role: Role) -> list[ReplicaHandle]:
        """Return the members of a role."""
        return self.servers if role == "ps" else self.workers

    def allocation(self, batch_size: int) -> Allocation:
        """Return the allocation of the members."""
        return allocation_of([m.resources for m in self.workers], [m.resources for m in self.servers], batch_size)

    def joined(self) -> set[int]:
        """Return the numbers under which the workers have joined."""
        return {worker.joined for worker in self.workers}

    def hold(self, pool: ActorPool, members: Sequence[ReplicaHandle]) -> None:
        """Set the CPU limits of replicas, which need not be members yet."""
        first = self.first_cores(members)
        pool.get([m.actor.set_cpu.remote(m.resources.cpu, first[m]) for m in members])

    def first_cores(self, newcomers: Iterable[ReplicaHandle]) -> dict[ReplicaHandle, int]:
        """Return the first core of each replica on its machine, for limits of whole cores."""
        taken: dict[str, float] = {}
        first = {}
        for member in [*self.members, *(member for member in newcomers if member not in self.members)]:
            first[member] = int(taken.get(member.node, 0.0))
            taken[member.node] = taken.get(member.node, 0.0) + member.resources.cpu
        return first
