"""Caps: an ordered list of small steps, each of which rules allocations out and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.table import Columns
from sizewright.recommender.grid import Grid
from sizewright.spec import Cluster, Group, Job
from sizewright.spec.units import format_bytes, format_seconds, write_bytes, write_seconds

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
            wanted.append(f"bounds.{role}.memory to {write_bytes(need.min() if need.min() > most else need.max())}")
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
    have = f"{c.cluster.cpu_limit:g} cores and {format_bytes(c.cluster.memory_limit_bytes)}"
    least = np.flatnonzero(left)[np.argmin(np.maximum(cores / c.cluster.cpu_limit, memory / c.cluster.memory_limit_bytes)[left])]
    need = f"{cores[least]:g} cores and {write_bytes(memory[least])}"
    return Verdict(
        allowed,
        f"cluster {c.cluster.name} allows {have}; the least allocation needs {need}",
        f"Lower the least replicas and cpu in the bounds, or raise the quota to {need}.",
    )


def within_hosts(c: Candidates, left: Mask) -> Verdict:
    """Every replica must fit one host, and all of them the hosts there are."""
    if c.cluster is None:
        return Verdict(np.ones(len(c.grid), bool), "", "")
    # A replica that fits no host counts as a billion hosts' worth.
    fit_worker = _replicas_that_fit(c.cluster, c.grid.worker_cpu, c.worker_memory_bytes)
    fit_ps = _replicas_that_fit(c.cluster, c.grid.ps_cpu, c.ps_memory_bytes)
    # Each role takes a share of the hosts; together they may not take more than all of them.
    share = c.grid.workers / np.maximum(fit_worker, 1e-9) + c.grid.ps / np.maximum(fit_ps, 1e-9)
    largest = f"{c.cluster.largest_cpu:g} cores and {format_bytes(c.cluster.largest_memory_bytes)}"
    return Verdict(
        share <= 1 + 1e-9,
        f"the hosts of {c.cluster.name} (the largest has {largest}) cannot hold the replicas",
        _raise_hosts(float(share[left].min()), largest),
    )


def _raise_hosts(least_share: float, largest: str) -> str:
    if least_share >= 1e9:
        return f"Allow replicas of at most {largest} in the bounds, or add larger hosts."
    return f"Lower the least replicas and sizes in the bounds, or have {least_share + 0.05:.1f} times as many hosts."


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


def _replicas_that_fit(cluster: Cluster, cpu: Floats, memory_bytes: Floats) -> Floats:
    """How many replicas of each size the cluster's hosts hold (n,)."""
    pairs, inverse = np.unique(np.column_stack([cpu, memory_bytes]), axis=0, return_inverse=True)
    groups = [Group(replicas=1, cpu=float(c), memory_bytes=int(m)) for c, m in pairs]
    fits = np.array([sum(host.fits(group) * host.count for host in cluster.hosts) for group in groups], float)
    return fits[inverse]
