"""Pack the replicas of a job on hosts: which allocations fit, and how many hosts they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.recommender.sizing.grid import Grid
from sizewright.spec import Allocation, HostKind, Job

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
_ROUNDING = 1e-9


class Replicas(NamedTuple):
    """The replicas of a role in columns (n,): their number, and the size of one."""

    number: Floats
    cpu: Floats
    memory_bytes: Floats
    gpu: Floats

    @property
    def resources(self) -> Floats:
        """Cores, bytes and GPUs of one replica (3, n); 0 where the role has no replicas."""
        return np.asarray(np.array([self.cpu, self.memory_bytes, self.gpu]) * (self.number > 0))


class Packing(NamedTuple):
    """Which allocations have a place for every replica (n,), and the number of hosts that each uses (n,)."""

    fits: Mask
    hosts: Floats


class _EqualHosts(NamedTuple):
    """Hosts of a packing (n,) with as much free (3, n): cores, bytes and GPUs."""

    number: Floats
    free: Floats
    used: bool


def replicas_of(grid: Grid, worker_memory_bytes: Floats, ps_memory_bytes: Floats) -> tuple[Replicas, Replicas]:
    """Return the workers and the PS of allocations."""
    workers = Replicas(grid.workers, grid.worker_cpu, worker_memory_bytes, grid.worker_gpu)
    return workers, Replicas(grid.ps, grid.ps_cpu, ps_memory_bytes, np.zeros(len(grid)))


def pack(
    job: Job,
    kinds: Sequence[HostKind],
    workers: Replicas,
    ps: Replicas,
    *,
    gpus: Callable[[HostKind], Floats | float] | None = None,
    any_number: bool = False,
) -> Packing:
    """Pack each allocation (n,) on hosts of some kinds: as many as there are, or with `any_number` as it needs.

    `gpus` returns the GPUs of a host that a worker may use, (n,) or one number; by default those of the kind that the
    job names.

    Workers are packed densely, host by host, and PS, chief and evaluator fill what is free; or PS come first, where
    this uses fewer hosts. What passes can be placed; in rare cases, other packings use fewer hosts.
    """
    size, usable = len(workers.number), gpus or job.gpus_on
    hosts = [
        _EqualHosts(
            np.full(size, np.inf if any_number else float(kind.count)),
            np.stack([np.broadcast_to(each, size) for each in (kind.cpu, float(kind.memory_bytes), usable(kind))]),
            used=False,
        )
        for kind in kinds
    ]
    sides = [
        Replicas(*(np.full(size, float(value)) for value in (group.replicas, group.cpu, group.memory_bytes, 0)))
        for _, group in job.with_sides(Allocation(worker=(), batch_size=1)).groups
    ]
    one, other = _pack(hosts, [workers, ps, *sides]), _pack(hosts, [ps, workers, *sides])
    return Packing(one.fits | other.fits, np.minimum(one.hosts, other.hosts))


def _pack(hosts: Sequence[_EqualHosts], roles: Sequence[Replicas]) -> Packing:
    fits = np.ones(len(roles[0].number), dtype=bool)
    for role in roles:
        hosts, unplaced = _place(hosts, role)
        fits &= unplaced <= 0
    used = sum((each.number for each in hosts if each.used), np.zeros(len(fits)))
    return Packing(fits, np.where(fits, used, np.inf))


def _place(hosts: Sequence[_EqualHosts], role: Replicas) -> tuple[list[_EqualHosts], Floats]:
    """Return the hosts after a role was packed densely, and the number of its replicas (n,) that do not fit."""
    unplaced, after = role.number, list[_EqualHosts]()
    for number, free, used in hosts:
        per_host = _replicas_per_host(free, role)
        full = np.minimum(number, np.where(per_host > 0, unplaced // np.maximum(per_host, 1), 0))
        on_last = np.where((full < number) & (per_host > 0), unplaced - full * per_host, 0.0)
        after.append(_EqualHosts(full, free - per_host * role.resources, used=True))
        after.append(_EqualHosts((on_last > 0).astype(np.float64), free - on_last * role.resources, used=True))
        after.append(_EqualHosts(number - full - (on_last > 0), free, used))
        unplaced = unplaced - full * per_host - on_last
    return after, unplaced


def _replicas_per_host(free: Floats, role: Replicas) -> Floats:
    """Return how many replicas of a role fit into what is free on one host (n,)."""
    cpu, memory_bytes, gpus = free
    by_cpu = (cpu + _ROUNDING) / role.cpu
    by_memory = memory_bytes / np.maximum(role.memory_bytes, 1)
    by_gpus = np.where(role.gpu > 0, gpus / np.maximum(role.gpu, 1), np.inf)
    return np.asarray(np.maximum(np.floor(np.minimum(np.minimum(by_cpu, by_memory), by_gpus)), 0.0))
