"""Caps: an ordered list of rules, each of which excludes allocations and gives the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.formatting import write_bytes, write_seconds
from sizewright.models.memory.device import DeviceMemory
from sizewright.recommender.machines.packing import pack, replicas_of
from sizewright.recommender.sizing.gpu_trials import DeviceLimit
from sizewright.recommender.sizing.grid import Grid, choosable_range
from sizewright.spec import Cluster, HostKind, Job
from sizewright.spec.reason import Reason
from sizewright.spec.wording import amounts

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SUPPORTED_RANGE_CAP, INTERVAL_CAP = "measured range", "interval"
MEASURABLE_CAPS = frozenset({SUPPORTED_RANGE_CAP, INTERVAL_CAP})
"""The caps that a measurement can lift."""
MAX_INTERVAL_RATIO = 10.0
"""Upper over lower end of a throughput interval; a wider interval supports no decision."""
_ROUNDING = 1 + 1e-9
_LOWER_OR_ADD_HOSTS = "Lower the minimum replicas and sizes in the bounds, or add hosts."
_MIN_TREND_RATIO = 4.0  # largest over smallest measured tables, from which trials support a trend


@dataclass(frozen=True)
class CapInput:
    """The inputs of caps: the grid, the needs of each allocation, and the supported ranges."""

    job: Job
    cluster: Cluster | None
    grid: Grid
    worker_memory_bytes: Floats
    ps_memory_bytes: Floats
    embedding_bytes: float
    supported_ranges: dict[str, tuple[float, float]]
    """Minimum and maximum of each axis that the trials or the prior cover."""
    interval_ratio: Floats
    """Upper over lower end of the interval of throughput."""
    latest_time_s: Floats
    """Seconds within which the job completes with probability 0.9; with interruptions their mean is in it."""
    meets_deadline: Mask | None = None
    """Whether the job completes by its deadline with probability 0.9; by default judged by `latest_time_s`."""
    latest_of: Callable[[int], float] | None = None
    """The row → seconds within which the job completes with probability 0.9; by default `latest_time_s`."""
    extrapolate: bool = False
    device_limits: Sequence[DeviceLimit] = ()
    """Of the trials in which the memory of a GPU ran out."""
    device_memory: DeviceMemory | None = None
    """Of a GPU, where trials or the description tell it."""

    def usable_gpus(self, host: HostKind) -> Floats:
        """Return the GPUs of a host that a worker may use (n,): all, or 0 where these are too small or others."""
        if self.device_memory is None:
            return np.full(len(self.grid), float(self.job.gpus_on(host)))
        fits = self.device_memory.fits(host, self.grid.workers, self.grid.worker_gpu, self.grid.batch_size)
        return np.where(fits, float(self.job.gpus_on(host)), 0.0)


class CapResult(NamedTuple):
    """The allocations that a cap allows (n,), why it excludes the others, and what would lift it."""

    allowed: Mask
    reason: Reason
    remedy: str


class Ruling(NamedTuple):
    """A cap that was applied, and how many allocations it excluded that earlier caps had allowed."""

    cap: str
    ruled_out: int
    result: CapResult


# The mask holds the allocations that the caps before it allow, at least one.
Cap = Callable[[CapInput, Mask], CapResult]


def _no_limit(c: CapInput) -> CapResult:
    return CapResult(np.ones(len(c.grid), bool), Reason.of("no_limit"), "")


def within_memory_bounds(c: CapInput, remaining: Mask) -> CapResult:
    """Require that the memory of a replica fits the bounds of its role."""
    worker_limit = c.job.bounds.worker.memory_bytes[1]
    ps_limit = c.job.bounds.ps.memory_bytes[1]
    allowed = (c.worker_memory_bytes <= worker_limit) & (c.ps_memory_bytes <= ps_limit)
    reason = Reason.of(
        "memory_bounds",
        ps_bytes=float(c.ps_memory_bytes.min()),
        ps_max_bytes=float(c.ps_memory_bytes.max()),
        worker_bytes=float(c.worker_memory_bytes.min()),
        worker_max_bytes=float(c.worker_memory_bytes.max()),
        ps_limit_bytes=ps_limit,
        worker_limit_bytes=worker_limit,
    )
    # The remedy names the smallest need where none fits the bound, else the largest.
    raises = []
    for role, needs, limit in (("ps", c.ps_memory_bytes, ps_limit), ("worker", c.worker_memory_bytes, worker_limit)):
        if needs.max() > limit:
            enough = needs.min() if needs.min() > limit else needs.max()
            raises.append(f"bounds.{role}.memory to {write_bytes(enough)}")
    more_ps = f", or bounds.ps.replicas above {int(c.grid.ps.max())}" if c.ps_memory_bytes.min() > ps_limit else ""
    return CapResult(allowed, reason, f"Raise {' and '.join(raises)}{more_ps}." if raises else "")


def within_device_memory(c: CapInput, remaining: Mask) -> CapResult:
    """Exclude allocations at which the memory of a GPU ran out in a trial, and those that need more of it.

    A larger batch needs more. Fewer workers may need more, too, since each may then hold a larger share of the tables.
    """
    allowed = np.ones(len(c.grid), bool)
    for limit in c.device_limits:
        on_no_more = c.grid.workers * np.maximum(c.grid.worker_gpu, 1) <= limit.gpus
        allowed &= ~((c.grid.batch_size > limit.largest_batch_size) & on_no_more)
    smallest = min((limit.batch_size for limit in c.device_limits), default=0)
    reason = Reason.of("device_memory", batch_size=smallest, trials=len(c.device_limits))
    return CapResult(allowed, reason, "Lower the minimum of bounds.batch_size, or use GPUs with more memory.")


def within_gpu_memory(c: CapInput, remaining: Mask) -> CapResult:
    """Require that the GPUs of some kind of host hold the predicted batch and share of the tables of one of theirs."""
    hosts = [host for host in c.cluster.hosts if host.count and c.job.gpus_on(host)] if c.cluster else []
    if c.cluster is None or c.device_memory is None or not hosts:
        return _no_limit(c)
    sizes = (c.grid.workers, c.grid.worker_gpu, c.grid.batch_size)
    allowed = np.any([c.device_memory.fits(host, *sizes) for host in hosts], axis=0)
    if allowed.all():
        return _no_limit(c)
    needs = np.min([c.device_memory.bytes_on(host, *sizes) for host in hosts], axis=0)[~allowed]
    reason = Reason.of(
        "gpu_memory",
        cluster=c.cluster.name,
        limit_bytes=max(host.gpu_memory_bytes or 0 for host in hosts),
        needed_bytes=float(needs.min()),
        needed_max_bytes=float(needs.max()),
        described=bool(c.device_memory.described_bytes),
        trials=c.device_memory.trials,
    )
    described = ", or correct model.tables if not all tables lie on GPUs" if c.device_memory.described_bytes else ""
    return CapResult(
        allowed,
        reason,
        f"Use GPUs with more memory, allow more of them in the bounds, or smaller batches{described}.",
    )


def within_hosts(c: CapInput, remaining: Mask) -> CapResult:
    """Require that every replica fits one host, and that all replicas fit the hosts of the cluster."""
    if c.cluster is None:
        return _no_limit(c)
    name = c.cluster.name
    hosts = [host for host in c.cluster.hosts if host.count]
    if not hosts:
        reason = Reason.of("no_hosts", cluster=name)
        return CapResult(np.zeros(len(c.grid), bool), reason, "Give its hosts a count above 0.")
    workers, servers = replicas_of(c.grid, c.worker_memory_bytes, c.ps_memory_bytes)
    allowed = pack(c.job, hosts, workers, servers, gpus=c.usable_gpus).fits
    host_sizes = np.array([(host.cpu, host.memory_bytes, c.job.gpus_on(host)) for host in hosts], float)

    one_host = _Capacity(np.maximum(workers.resources, servers.resources), host_sizes.max(axis=0))
    if (allowed & remaining).any():
        return CapResult(allowed, Reason.of("hosts", cluster=name, **one_host.limits()), _LOWER_OR_ADD_HOSTS)
    smallest = one_host.nearest_to_fit(remaining)
    if exceeded := one_host.exceeded(smallest):
        needs = one_host.needs(smallest, exceeded)
        reason = Reason.of("replica_too_large", cluster=name, **one_host.limits(exceeded), **needs)
        remedy = f"Lower the minimum sizes in the bounds, or add hosts with {amounts('needed', needs)}."
        return CapResult(allowed, reason, remedy)

    all_hosts = _Capacity(_total_resources(c), np.array([host.count for host in hosts]) @ host_sizes)
    smallest = all_hosts.nearest_to_fit(remaining)
    if exceeded := all_hosts.exceeded(smallest):
        needs = all_hosts.needs(smallest, exceeded)
        reason = Reason.of("hosts_too_small", cluster=name, **all_hosts.limits(exceeded), **needs)
        return CapResult(allowed, reason, _LOWER_OR_ADD_HOSTS)
    allocation = c.grid.allocation(smallest, c.worker_memory_bytes[smallest], c.ps_memory_bytes[smallest])
    reason = Reason.of("replicas_do_not_fit", cluster=name, allocation=allocation.describe())
    return CapResult(allowed, reason, _LOWER_OR_ADD_HOSTS)


def within_quota(c: CapInput, remaining: Mask) -> CapResult:
    """Require that the whole job stays within the quota."""
    if c.cluster is None:
        return _no_limit(c)
    quota = c.cluster.quota
    limits = [np.inf if limit is None else limit for limit in (quota.cpu, quota.memory_bytes, quota.gpu)]
    capacity = _Capacity(_total_resources(c), np.array(limits, float))
    allowed = np.asarray(capacity.fits.all(axis=0))
    reason = Reason.of("quota", cluster=c.cluster.name, **capacity.limits())
    if (allowed & remaining).any():
        return CapResult(allowed, reason, "Raise the quota.")
    smallest = capacity.nearest_to_fit(remaining)
    needs = capacity.needs(smallest, capacity.exceeded(smallest))
    return CapResult(
        allowed,
        reason.adding(**needs),
        f"Lower the minimum replicas and sizes in the bounds, or raise the quota to {amounts('needed', needs)}.",
    )


def within_deadline(c: CapInput, remaining: Mask) -> CapResult:
    """Require, with objective deadline, that the deadline is met with probability 0.9."""
    if c.job.objective != "deadline" or c.job.deadline is None:
        return _no_limit(c)
    first = int(np.flatnonzero(remaining)[np.argmin(c.latest_time_s[remaining])])
    earliest = c.latest_of(first) if c.latest_of else float(c.latest_time_s[first])
    return CapResult(
        c.latest_time_s <= c.job.deadline if c.meets_deadline is None else c.meets_deadline,
        Reason.of("deadline", deadline_s=c.job.deadline, earliest_s=earliest),
        f"Set the deadline to {write_seconds(earliest)} or later, or raise the maximum replicas and cpu in the bounds.",
    )


def within_supported_range(c: CapInput, remaining: Mask) -> CapResult:
    """Require that no axis is beyond twice its supported range, unless the user allows extrapolation.

    The tables of a job may be larger than any host can hold: trials at several sizes support extrapolation along them.
    """
    log_excess = np.zeros(len(c.grid))
    ranges: dict[str, float] = {}
    for axis, excess in _excesses(c):
        low, high = map(float, c.supported_ranges[axis])
        if axis == "embedding_bytes" and high >= _MIN_TREND_RATIO * low:
            continue
        if excess.max() > _ROUNDING:
            ranges |= {f"{axis}_min": low, f"{axis}_max": high}
        log_excess += np.log(np.maximum(excess, 1.0))
    nearest = c.grid.allocation(int(np.flatnonzero(remaining)[np.argmin(log_excess[remaining])])).describe()
    return CapResult(
        (log_excess <= np.log(_ROUNDING)) | c.extrapolate,
        Reason.of("measured_range", **ranges),
        f"Measure {nearest} (on a larger host, or import a trial), or allow extrapolation (--extrapolate).",
    )


def within_interval(c: CapInput, remaining: Mask) -> CapResult:
    """Require that the interval of throughput supports a decision."""
    narrowest = int(np.flatnonzero(remaining)[np.argmin(c.interval_ratio[remaining])])
    return CapResult(
        c.interval_ratio <= MAX_INTERVAL_RATIO,
        Reason.of("interval", max_ratio=MAX_INTERVAL_RATIO),
        f"Measure {c.grid.allocation(narrowest).describe()}, or another allocation near it.",
    )


def beyond_supported(c: CapInput, row: int) -> list[Reason]:
    """Return the axes on which a row lies beyond twice the supported range, with that range."""
    columns = c.grid.columns(c.embedding_bytes)
    reasons = []
    for axis, excess in _excesses(c):
        if excess[row] > _ROUNDING:
            low, high = map(float, c.supported_ranges[axis])
            reasons.append(Reason.of("extrapolated", axis=axis, value=float(columns[axis][row]), min=low, max=high))
    return reasons


def _excesses(c: CapInput) -> Iterator[tuple[str, Floats]]:
    """Yield the factor (n,) by which each axis exceeds the range it may be chosen from; 1 and less is inside."""
    columns = c.grid.columns(c.embedding_bytes)
    for axis, supported in c.supported_ranges.items():
        low, high = choosable_range(axis, supported)
        yield axis, np.maximum(low / np.maximum(columns[axis], 1e-9), columns[axis] / high)


# Order matters: rules about what can never run come before those about what was only not measured.
CAPS: tuple[tuple[str, Cap], ...] = (
    ("memory bounds", within_memory_bounds),
    ("device memory", within_device_memory),
    ("GPU memory", within_gpu_memory),
    ("hosts", within_hosts),
    ("quota", within_quota),
    (SUPPORTED_RANGE_CAP, within_supported_range),
    (INTERVAL_CAP, within_interval),
    ("deadline", within_deadline),
)


def apply_caps(cap_input: CapInput, caps: Sequence[tuple[str, Cap]] = CAPS) -> tuple[Mask, list[Ruling]]:
    """Apply the caps in order; return the allowed allocations (n,) and a ruling for each cap that was applied.

    Stops at the cap that excludes the last allocation.
    """
    allowed = np.ones(len(cap_input.grid), bool)
    rulings = []
    for name, cap in caps:
        result = cap(cap_input, allowed)
        rulings.append(Ruling(name, int((allowed & ~result.allowed).sum()), result))
        allowed = allowed & result.allowed
        if not allowed.any():
            break
    return allowed, rulings


_RESOURCES = ("cores", "memory_bytes", "gpus")


@dataclass(frozen=True)
class _Capacity:
    """Cores, bytes and GPUs that allocations ask for (3, n), and the limits (3,); inf for no limit."""

    needed: Floats
    limit: Floats

    @property
    def fits(self) -> Mask:
        """Return which allocations stay within each limit (3, n)."""
        return self.needed <= self.limit[:, None] + 1e-9

    def nearest_to_fit(self, remaining: Mask) -> int:
        """Return the remaining row whose largest share of a limit is smallest."""
        share = (self.needed / np.maximum(self.limit[:, None], 1e-9)).max(axis=0)
        return int(np.flatnonzero(remaining)[np.argmin(share[remaining])])

    def exceeded(self, row: int) -> list[int]:
        """Return the resources whose limit a row exceeds."""
        return np.flatnonzero(~self.fits[:, row]).tolist()

    def limits(self, resources: Sequence[int] | None = None) -> dict[str, float]:
        """Return the limits of some resources, or of all that are limited and asked for, as values of a reason."""
        if resources is None:
            resources = np.flatnonzero(np.isfinite(self.limit) & self.needed.any(axis=1)).tolist()
        return {f"limit_{_RESOURCES[i]}": float(self.limit[i]) for i in resources}

    def needs(self, row: int, resources: Sequence[int]) -> dict[str, float]:
        """Return the amounts of some resources that a row asks for, as values of a reason."""
        return {f"needed_{_RESOURCES[i]}": float(self.needed[i, row]) for i in resources}


def _total_resources(c: CapInput) -> Floats:
    """Return the cores, bytes and GPUs of all replicas together (3, n)."""
    return np.array([c.grid.cores, c.grid.memory_bytes(c.worker_memory_bytes, c.ps_memory_bytes), c.grid.gpus])
