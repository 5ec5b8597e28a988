"""Caps: an ordered list of small steps, each of which rules allocations out and says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.table import Columns
from sizewright.recommender.grid import Grid
from sizewright.spec import Cluster, Job
from sizewright.spec.units import format_bytes, format_count, format_seconds, memory_quantity, write_seconds

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# An axis may be extrapolated to twice its measured range.
RANGE_FACTOR = 2.0
_ROUNDING = 1 + 1e-9
_CORES = ("worker_cpu", "ps_cpu")


@dataclass(frozen=True)
class Candidates:
    """All that a cap may look at: the grid, what each allocation needs, and what was measured."""

    job: Job
    cluster: Cluster | None
    grid: Grid
    worker_memory_bytes: Floats
    ps_memory_bytes: Floats
    embedding_bytes: float
    measured: dict[str, tuple[float, float]]
    latest_time_s: Floats
    extrapolate: bool = False


class Verdict(NamedTuple):
    """What a cap leaves, why it ruled others out, and what would lift it."""

    allowed: Mask
    reason: str
    remedy: str


class Ruling(NamedTuple):
    """A cap that was applied, and how many allocations it ruled out that were left before it."""

    cap: str
    ruled_out: int
    verdict: Verdict


# A cap is also told which allocations the caps before it have left, at least one.
Cap = Callable[[Candidates, Mask], Verdict]


def within_memory_bounds(c: Candidates, left: Mask) -> Verdict:
    """A replica's memory must fit the bounds of its role."""
    worker, ps = c.job.bounds.worker.memory_bytes[1], c.job.bounds.ps.memory_bytes[1]
    allowed = (c.worker_memory_bytes <= worker) & (c.ps_memory_bytes <= ps)
    need = f"at least {format_bytes(c.ps_memory_bytes.min())} per PS and {format_bytes(c.worker_memory_bytes.min())}"
    return Verdict(
        allowed,
        f"the tables need {need} per worker; the bounds allow {format_bytes(ps)} and {format_bytes(worker)}",
        _raise_memory(c, worker, ps),
    )


def _raise_memory(c: Candidates, worker: int, ps: int) -> str:
    """What lifts the cap: the least need where none fits, else the greatest."""
    wanted = []
    for role, need, most in (("ps", c.ps_memory_bytes, ps), ("worker", c.worker_memory_bytes, worker)):
        if need.max() > most:
            wanted.append(f"bounds.{role}.memory to {memory_quantity(need.min() if need.min() > most else need.max())}")
    more = f", or bounds.ps.replicas above {int(c.grid.ps.max())}" if c.ps_memory_bytes.min() > ps else ""
    return f"Raise {' and '.join(wanted)}{more}." if wanted else ""


def within_quota(c: Candidates, left: Mask) -> Verdict:
    """The whole job must fit the cluster's capacity and quota."""
    if c.cluster is None:
        return Verdict(np.ones(len(c.grid), bool), "", "")
    grid = c.grid
    cores = grid.workers * grid.worker_cpu + grid.ps * grid.ps_cpu
    memory = grid.workers * c.worker_memory_bytes + grid.ps * c.ps_memory_bytes
    allowed = (cores <= c.cluster.cpu_limit + 1e-9) & (memory <= c.cluster.memory_limit_bytes)
    have = f"{format_count(c.cluster.cpu_limit, 'core')} and {format_bytes(c.cluster.memory_limit_bytes)}"
    excess = np.maximum(cores / max(c.cluster.cpu_limit, 1e-9), memory / max(c.cluster.memory_limit_bytes, 1))
    least = np.flatnonzero(left)[np.argmin(excess[left])]
    need = f"{format_count(float(cores[least]), 'core')} and {memory_quantity(memory[least])}"
    return Verdict(
        allowed,
        f"cluster {c.cluster.name} allows {have}; the least allocation needs {need}",
        f"Lower the least replicas and cpu in the bounds, or {_more_capacity(c.cluster)} to {need}.",
    )


def _more_capacity(cluster: Cluster) -> str:
    """Which of the two binds."""
    within = (cluster.quota.cpu or math.inf) > cluster.cpu_limit or not cluster.quota.cpu
    within &= (cluster.quota.memory_bytes or math.inf) > cluster.memory_limit_bytes or not cluster.quota.memory_bytes
    return "add hosts up" if within else "raise the quota"


def within_hosts(c: Candidates, left: Mask) -> Verdict:
    """Every replica must fit one host, and all of them the hosts there are."""
    if c.cluster is None:
        return Verdict(np.ones(len(c.grid), bool), "", "")
    workers = _Replicas(c.grid.workers, c.grid.worker_cpu, c.worker_memory_bytes)
    servers = _Replicas(c.grid.ps, c.grid.ps_cpu, c.ps_memory_bytes)
    largest = f"{format_count(c.cluster.largest_cpu, 'core')} and {format_bytes(c.cluster.largest_memory_bytes)}"
    least = np.flatnonzero(left)[np.argmin((workers.number * workers.cpu + servers.number * servers.cpu)[left])]
    needed = c.grid.allocation(int(least), c.worker_memory_bytes[least], c.ps_memory_bytes[least]).describe()
    return Verdict(
        _can_be_placed(c.cluster, workers, servers) | _can_be_placed(c.cluster, servers, workers),
        f"the hosts of {c.cluster.name} (the largest has {largest}) cannot hold the replicas",
        f"Lower the least replicas and sizes in the bounds, or have hosts that hold {needed}.",
    )


def within_deadline(c: Candidates, left: Mask) -> Verdict:
    """With objective deadline, it must be met with probability 0.9."""
    if c.job.objective != "deadline" or c.job.deadline is None:
        return Verdict(np.ones(len(c.grid), bool), "", "")
    soonest = float(c.latest_time_s[left].min())
    return Verdict(
        c.latest_time_s <= c.job.deadline,
        f"the deadline is {format_seconds(c.job.deadline)}; the soonest that is 90 % sure is {format_seconds(soonest)}",
        f"Set the deadline to {write_seconds(soonest)} or later, or raise the greatest replicas and cpu in the bounds.",
    )


def within_measured_range(c: Candidates, left: Mask) -> Verdict:
    """No axis beyond twice its measured range, unless the user covers it.

    Cores that were never varied are not lowered: their effect is unknown, and fewer would look free.
    """
    columns: Columns = c.grid.columns(c.embedding_bytes)
    beyond = np.zeros(len(c.grid))
    outside = []
    for axis, (low, high) in c.measured.items():
        least = low if low == high and axis in _CORES else low / RANGE_FACTOR
        factor = np.maximum(least / columns[axis], columns[axis] / (high * RANGE_FACTOR))
        if factor.max() > _ROUNDING:
            outside.append(f"{axis} {low:g} to {high:g}")
        beyond += np.log(np.maximum(factor, 1.0))
    nearest = c.grid.allocation(int(np.flatnonzero(left)[np.argmin(beyond[left])])).describe()
    return Verdict(
        (beyond <= np.log(_ROUNDING)) | c.extrapolate,
        f"measured were {', '.join(outside)}, and nothing beyond twice that range is chosen",
        f"Measure {nearest} (on a larger host, or as a trial of your own), or pass --extrapolate.",
    )


# Order matters: what can never run comes before what has only not been measured.
CAPS: tuple[tuple[str, Cap], ...] = (
    ("memory bounds", within_memory_bounds),
    ("quota", within_quota),
    ("hosts", within_hosts),
    ("measured range", within_measured_range),
    ("deadline", within_deadline),
)


def apply_caps(
    candidates: Candidates, caps: Sequence[tuple[str, Cap]] = CAPS
) -> tuple[NDArray[np.bool_], list[Ruling]]:
    """Apply the caps in order: what is left, and of each cap how many it ruled out that were left before it.

    Stops at the cap that rules out the last.
    """
    allowed = np.ones(len(candidates.grid), bool)
    told = []
    for name, cap in caps:
        verdict = cap(candidates, allowed)
        told.append(Ruling(name, int((allowed & ~verdict.allowed).sum()), verdict))
        allowed = allowed & verdict.allowed
        if not allowed.any():
            break
    return allowed, told


class _Replicas(NamedTuple):
    """Columns (n,) of a role: how many, and the size of one."""

    number: Floats
    cpu: Floats
    memory_bytes: Floats


def _can_be_placed(cluster: Cluster, first: _Replicas, second: _Replicas) -> Mask:
    """Whether the `second` role fits beside the `first`, packed densely host by host (n,).

    What passes can be placed. On one host the converse holds too; on many a cleverer packing might hold more.
    """
    to_place, room = first.number, np.zeros(len(first.number))
    for host in cluster.hosts:
        dense = _fitting(host.cpu, host.memory_bytes, first)
        full = np.minimum(host.count, np.where(dense > 0, to_place // np.maximum(dense, 1), 0))
        over = np.where((full < host.count) & (dense > 0), to_place - full * dense, 0.0)
        empty = host.count - full - (over > 0)
        for hosts, taken in ((full, dense), (over > 0, over), (empty, 0.0)):
            rest_cpu, rest_bytes = host.cpu - taken * first.cpu, host.memory_bytes - taken * first.memory_bytes
            room = room + hosts * _fitting(rest_cpu, rest_bytes, second)
        to_place = to_place - full * dense - over
    return np.asarray((to_place <= 0) & (room >= second.number))


def _fitting(cpu: Floats | float, memory_bytes: Floats | float, one: _Replicas) -> Floats:
    """How many replicas of this size so much of a host holds (n,)."""
    by_memory = memory_bytes / np.maximum(one.memory_bytes, 1)
    return np.maximum(np.floor(np.minimum((cpu + 1e-9) / one.cpu, by_memory)), 0.0)
