"""The replicas behind the candidates of the allocation problem, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.problem.problem import Floats, Ints
from sizewright.spec import ROLES, Candidate, Group, Role


@dataclass(frozen=True)
class ReplicaGroups:
    """Groups of equal replicas: J jobs, K columns, up to G groups of a candidate, T sizes of replicas, R resources."""

    sizes: Floats
    """(T, R): what a replica of each size needs."""
    size: NDArray[np.int32]
    """(J, K, G): the size of the replicas of each group."""
    count: NDArray[np.int32]
    """(J, K, G): the number of replicas; 0 where a candidate has fewer groups."""
    role: NDArray[np.int8]
    """(J, K, G): the role of each group, by its index in `ROLES`."""

    def of(self, jobs: Ints, columns: Ints) -> tuple[Ints, Floats]:
        """Return the numbers of replicas (n, G) of some columns (n,), and what each of them needs (n, G, R)."""
        count = self.count[jobs, columns].astype(np.intp)
        return count, np.where(count[:, :, None] > 0, self.sizes[self.size[jobs, columns]], 0.0)

    def roles(self, job: int, column: int) -> list[Role]:
        """Return the roles of the groups of a column."""
        pairs = zip(self.role[job, column].tolist(), self.count[job, column].tolist(), strict=True)
        return [ROLES[role] for role, count in pairs if count]


def replica_groups(candidates: Sequence[Sequence[Candidate]], resources: Sequence[str]) -> ReplicaGroups:
    """Return the groups of the `candidates` of each job, which are columns 1, 2, … of its table."""
    groups = [
        [[(role, group) for role, group in each.allocation.groups if group.replicas] for each in of_job]
        for of_job in candidates
    ]
    K = 1 + max((len(of_job) for of_job in groups), default=0)
    G = max((len(column) for of_job in groups for column in of_job), default=0)
    size, count, role = (np.zeros((len(groups), K, G), dtype=kind) for kind in (np.int32, np.int32, np.int8))
    sizes: dict[tuple[float, ...], int] = {}
    for j, of_job in enumerate(groups):
        for k, column in enumerate(of_job, start=1):
            for g, (name, group) in enumerate(column):
                size[j, k, g] = sizes.setdefault(_need(group, resources), len(sizes))
                count[j, k, g] = group.replicas
                role[j, k, g] = ROLES.index(name)
    rows = np.array(list(sizes) or np.zeros((1, len(resources))), dtype=float)
    return ReplicaGroups(rows, size, count, role)


def _need(group: Group, resources: Sequence[str]) -> tuple[float, ...]:
    """Return what one replica needs of each resource."""
    need = {"cpu": group.cpu, "memory_bytes": float(group.memory_bytes)}
    if group.gpu:
        need[GPU + group.gpu.kind] = float(group.gpu.count)
    return tuple(need.get(name, 0.0) for name in resources)
