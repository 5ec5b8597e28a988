"""Caps: an ordered list of small steps, each of which rules allocations out and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.recommender.grid import Grid, room_of
from sizewright.spec import Cluster, Job
from sizewright.spec.units import format_bytes, format_count, format_seconds, write_bytes, write_seconds

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

AXIS_WORDS = {
    "workers": "workers",
    "ps": "PS",
    "worker_cpu": "cores of a worker",
    "ps_cpu": "cores of a PS",
    "worker_gpu": "GPUs of a worker",
    "batch_size": "batch size",
    "embedding_bytes": "size of the tables",
}
"""What an axis is called in sentences."""
_ROUNDING = 1 + 1e-9
_FIT = "Lower the least replicas and sizes in the bounds, or add hosts."
_TREND = 4.0  # the sizes of the largest and the smallest tables measured, from which a trend can be told


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
            wanted.append(f"bounds.{role}.memory to {write_bytes(need.min() if need.min() > most else need.max())}")
    more = f", or bounds.ps.replicas above {int(c.grid.ps.max())}" if c.ps_memory_bytes.min() > ps else ""
    return f"Raise {' and '.join(wanted)}{more}." if wanted else ""


def within_hosts(c: Candidates, left: Mask) -> Verdict:
    """Every replica must fit one host, and all of them the hosts there are."""
    if c.cluster is None:
        return Verdict(np.ones(len(c.grid), bool), "", "")
    name, hosts = c.cluster.name, [host for host in c.cluster.hosts if host.count]
    if not hosts:
        return Verdict(np.zeros(len(c.grid), bool), f"cluster {name} has no host", "Give its hosts a count above 0.")
    workers = _Replicas(c.grid.workers, c.grid.worker_cpu, c.worker_memory_bytes, c.grid.worker_gpu)
    servers = _Replicas(c.grid.ps, c.grid.ps_cpu, c.ps_memory_bytes, np.zeros(len(c.grid)))
    allowed = np.asarray(_can_be_placed(c.cluster, workers, servers) | _can_be_placed(c.cluster, servers, workers))
    sizes = np.array([(host.cpu, host.memory_bytes, host.gpu.count if host.gpu else 0) for host in hosts], float)
    largest = _Capacity(_larger(workers, servers), sizes.max(axis=0))
    if (allowed & left).any():
        return Verdict(allowed, f"the hosts of {name} (the largest has {largest.limits()}) cannot hold them", _FIT)
    least = largest.least(left)
    if short := largest.short(least):
        need = largest.needs(least, short)
        reason = f"no host of {name} has more than {largest.limits(short)}, and one replica asks for {need}"
        return Verdict(allowed, reason, f"Lower the least sizes in the bounds, or have hosts with {need}.")
    capacity = _Capacity(_in_all(c), np.array([host.count for host in hosts]) @ sizes)
    least = capacity.least(left)
    needed = c.grid.allocation(least, c.worker_memory_bytes[least], c.ps_memory_bytes[least]).describe()
    reason = f"the hosts of {name} cannot hold each replica of the least allocation ({needed}) on one host"
    if short := capacity.short(least):
        need = capacity.needs(least, short)
        reason = f"the hosts of {name} have {capacity.limits(short)} in all, and the least allocation asks for {need}"
    return Verdict(allowed, reason, _FIT)


def within_quota(c: Candidates, left: Mask) -> Verdict:
    """The whole job must keep the quota."""
    if c.cluster is None:
        return Verdict(np.ones(len(c.grid), bool), "", "")
    quota = c.cluster.quota
    limits = [np.inf if most is None else most for most in (quota.cpu, quota.memory_bytes, quota.gpu)]
    resources = _Capacity(_in_all(c), np.array(limits, float))
    allowed = np.asarray(resources.kept.all(axis=0))
    reason = f"the quota of {c.cluster.name} is {resources.limits()}"
    if (allowed & left).any():
        return Verdict(allowed, reason, "Raise the quota.")
    least = resources.least(left)
    short = resources.short(least)
    return Verdict(
        allowed,
        f"{reason}, and the least allocation asks for {resources.needs(least, short)}",
        f"Lower the least replicas and sizes in the bounds, or raise the quota to {resources.needs(least, short)}.",
    )


@dataclass(frozen=True)
class _Capacity:
    """Cores, memory and GPUs: what allocations ask for (3, n), and how much there is (3,); inf for no limit."""

    needed: Floats
    limit: Floats

    @property
    def kept(self) -> Mask:
        """Whether each allocation keeps each limit (3, n)."""
        return self.needed <= self.limit[:, None] + 1e-9

    def least(self, left: Mask) -> int:
        """Return the row, of those left, that comes nearest to keeping all limits."""
        excess = (self.needed / np.maximum(self.limit[:, None], 1e-9)).max(axis=0)
        return int(np.flatnonzero(left)[np.argmin(excess[left])])

    def short(self, row: int) -> list[int]:
        """Return the resources of which a row asks for too much."""
        return np.flatnonzero(~self.kept[:, row]).tolist()

    def limits(self, resources: Sequence[int] | None = None) -> str:
        """Return how much there is: of all resources that are limited and asked for, or of some."""
        of = np.flatnonzero(np.isfinite(self.limit) & self.needed.any(axis=1)) if resources is None else resources
        return " and ".join(_AMOUNTS[i](self.limit[i]) for i in of)

    def needs(self, row: int, resources: Sequence[int]) -> str:
        """Return what a row asks for of some resources."""
        return " and ".join(_AMOUNTS[i](self.needed[i, row]) for i in resources)


_AMOUNTS: tuple[Callable[[float], str], ...] = (
    lambda cores: format_count(float(cores), "core"),
    write_bytes,
    lambda gpus: format_count(round(gpus), "GPU"),
)


def _in_all(c: Candidates) -> Floats:
    """Cores, bytes and GPUs of all replicas (3, n)."""
    return np.array([c.grid.cores, c.grid.memory_bytes(c.worker_memory_bytes, c.ps_memory_bytes), c.grid.gpus])


def _larger(workers: _Replicas, servers: _Replicas) -> Floats:
    """Cores, bytes and GPUs of the larger replica (3, n); a role without replicas has none."""
    sizes = [np.array([role.cpu, role.memory_bytes, role.gpu]) * (role.number > 0) for role in (workers, servers)]
    return np.asarray(np.maximum(*sizes))


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

    The tables of a job may be larger than any that a host can hold: trials at several sizes tell their trend.
    """
    beyond = np.zeros(len(c.grid))
    outside = []
    for axis, factor in _excesses(c):
        if axis == "embedding_bytes" and c.measured[axis][1] >= _TREND * c.measured[axis][0]:
            continue
        if factor.max() > _ROUNDING:
            low, high = c.measured[axis]
            outside.append(f"{AXIS_WORDS[axis]} {_shown(axis, low)} to {_shown(axis, high)}")
        beyond += np.log(np.maximum(factor, 1.0))
    nearest = c.grid.allocation(int(np.flatnonzero(left)[np.argmin(beyond[left])])).describe()
    return Verdict(
        (beyond <= np.log(_ROUNDING)) | c.extrapolate,
        f"measured were {', '.join(outside)}, and nothing beyond twice that range is chosen",
        f"Measure {nearest} (on a larger host, or as a trial of your own), or let it extrapolate (--extrapolate).",
    )


def beyond_measured(c: Candidates, row: int) -> list[str]:
    """Return the axes on which a row lies beyond twice what was measured, with the range that was."""
    columns = c.grid.columns(c.embedding_bytes)
    return [
        f"{AXIS_WORDS[axis]}: {_shown(axis, columns[axis][row])}, where "
        f"{' to '.join(_shown(axis, end) for end in c.measured[axis])} was measured"
        for axis, factor in _excesses(c)
        if factor[row] > _ROUNDING
    ]


def _shown(axis: str, value: float) -> str:
    return format_bytes(value) if axis == "embedding_bytes" else f"{value:g}"


def _excesses(c: Candidates) -> Iterator[tuple[str, Floats]]:
    """By how many times each axis exceeds the room that was measured (n,); 1 and less is inside."""
    columns = c.grid.columns(c.embedding_bytes)
    for axis, measured in c.measured.items():
        least, greatest = room_of(axis, measured)
        yield axis, np.maximum(least / np.maximum(columns[axis], 1e-9), columns[axis] / greatest)


# Order matters: what can never run comes before what has only not been measured.
CAPS: tuple[tuple[str, Cap], ...] = (
    ("memory bounds", within_memory_bounds),
    ("hosts", within_hosts),
    ("quota", within_quota),
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
    gpu: Floats


def _can_be_placed(cluster: Cluster, first: _Replicas, second: _Replicas) -> Mask:
    """Whether the `second` role fits beside the `first`, packed densely host by host (n,).

    What passes can be placed. On one host the converse holds too; on many a cleverer packing might hold more.
    """
    to_place, room = first.number, np.zeros(len(first.number))
    for host in cluster.hosts:
        gpus = float(host.gpu.count if host.gpu else 0)
        dense = _fitting(host.cpu, host.memory_bytes, gpus, first)
        full = np.minimum(host.count, np.where(dense > 0, to_place // np.maximum(dense, 1), 0))
        over = np.where((full < host.count) & (dense > 0), to_place - full * dense, 0.0)
        empty = host.count - full - (over > 0)
        for hosts, taken in ((full, dense), (over > 0, over), (empty, 0.0)):
            rest = (
                host.cpu - taken * first.cpu,
                host.memory_bytes - taken * first.memory_bytes,
                gpus - taken * first.gpu,
            )
            room = room + hosts * _fitting(*rest, second)
        to_place = to_place - full * dense - over
    return np.asarray((to_place <= 0) & (room >= second.number))


def _fitting(cpu: Floats | float, memory_bytes: Floats | float, gpus: Floats | float, one: _Replicas) -> Floats:
    """How many replicas of this size so much of a host holds (n,)."""
    by_memory = memory_bytes / np.maximum(one.memory_bytes, 1)
    by_gpus = np.where(one.gpu > 0, gpus / np.maximum(one.gpu, 1), np.inf)
    return np.maximum(np.floor(np.minimum(np.minimum((cpu + 1e-9) / one.cpu, by_memory), by_gpus)), 0.0)
