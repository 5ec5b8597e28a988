"""Score allocations inside the bounds: predict throughput, memory, price and objective of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models.memory._base import MemoryForecast, round_within_bounds
from sizewright.models.memory.described import DescribedMemory
from sizewright.models.table import Columns
from sizewright.recommender.machines.offers import Offer
from sizewright.recommender.machines.packing import pack, replicas_of
from sizewright.recommender.machines.times import Times
from sizewright.recommender.sizing.grid import Grid, Ranges, make_grid
from sizewright.spec import Bounds, Cluster, HostKind, Job, Prices, Role, RoleBounds
from sizewright.spec.objective import (
    DEADLINE_COVERAGE,
    DEADLINE_PROBABILITY,
    REPLICA_HOUR,
    cost_of,
    hourly_price,
    objective_value,
    sides_price,
)

Floats = NDArray[np.float64]
COVERAGE = 0.9
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Scored:
    """Allocations and their predictions, as columns (n,)."""

    grid: Grid
    columns: Columns
    """The columns that the model predicted from."""
    throughput: Floats
    lower: Floats
    upper: Floats
    slowest: Floats
    """Samples/s that are exceeded with probability 0.9, where the job has a deadline; else `lower`."""
    worker_memory_bytes: Floats
    ps_memory_bytes: Floats
    hosts: Floats
    """Number of whole hosts that the allocation is put on: inf if it does not fit any, 0 if hosts have no price."""
    price_per_hour: Floats
    time_s: Floats
    """Completion time, on average over interruptions."""
    cost: Floats
    latest_time_s: Floats
    """Seconds within which the job completes with probability 0.9; with interruptions their mean is in it."""
    meets_deadline: NDArray[np.bool_]
    """Whether the job completes by its deadline with probability 0.9; True without one."""
    objective: Floats
    objective_lower: Floats
    objective_upper: Floats

    @property
    def interval_ratio(self) -> Floats:
        """Upper over lower end of the interval of throughput (n,)."""
        return np.asarray(self.upper / self.lower)

    def best(self, among: NDArray[np.int64] | None = None) -> int:
        """Return the row with the lowest objective, of all rows or of some.

        Of rows that differ by rounding only (with prices of 0, say), the fastest is returned.
        """
        rows = np.arange(len(self.objective)) if among is None else among
        tied = rows[self.objective[rows] <= self.objective[rows].min() * (1 + _ROUNDING)]
        return int(tied[np.argmax(self.throughput[tied])])

    def joined(self, other: Scored) -> Scored:
        """Return the rows of both."""

        def concatenate(a: Any, b: Any) -> Any:
            if isinstance(a, Grid):
                return Grid(**concatenate(vars(a), vars(b)))
            if isinstance(a, dict):
                return {name: concatenate(a[name], b[name]) for name in a}
            return np.concatenate([a, b])

        return Scored(**concatenate(vars(self), vars(other)))


class Scorer:
    """Predict throughput, memory, price and objective of allocations with a fitted model.

    With an `offer` whole hosts of one kind have a price, else replicas do. The model sees the links that `cluster`
    declares. Replicas of the roles in `unknown_cores`, whose cores no trial
    records, have one core, or the nearest number within the bounds.
    """

    def __init__(
        self,
        job: Job,
        model: BaseThroughputModel,
        memory: MemoryForecast,
        embedding_bytes: float,
        *,
        unknown_cores: frozenset[Role] = frozenset(),
        cluster: Cluster | None = None,
        offer: Offer | None = None,
    ) -> None:
        self.job = job
        self.model = model
        self.memory = memory
        self.embedding_bytes = embedding_bytes
        self.unknown_cores = unknown_cores
        self.cluster = cluster
        self.offer = offer

    def grid(self, trials: Sequence[Trial], supported_ranges: Ranges) -> Grid:
        """Return the allocations within the job's bounds, with fine steps around the supported ranges."""
        bounds = _with_fixed_cores(self.job, self.unknown_cores)
        return make_grid(
            bounds,
            self.job.training.batch_size,
            has_ps=self.job.has_ps,
            trials=trials,
            supported_ranges=supported_ranges,
            shared_batch=self.job.shared_batch(),
        )

    def score(
        self, grid: Grid, worker_memory_bytes: float | None = None, ps_memory_bytes: float | None = None
    ) -> Scored:
        """Return the allocations with their predictions.

        A replica requests the memory that it is predicted to need, or the given bytes.
        """
        columns = _with_links(grid.columns(self.embedding_bytes), self.cluster)
        throughput, lower, upper = self.model.predict_with_interval(columns, COVERAGE)
        slowest = lower
        if self.job.deadline is not None:
            slowest, _ = self.model.predict_interval(columns, DEADLINE_COVERAGE)
        worker_memory = self._request("worker", self.memory.worker_request_bytes(grid.batch_size, grid.loaders), grid)
        ps_memory = self._request("ps", self.memory.ps_request_bytes(grid.ps, grid.workers, grid.batch_size), grid)
        if worker_memory_bytes is not None:
            worker_memory = np.full(len(grid), worker_memory_bytes)
        if ps_memory_bytes is not None:
            ps_memory = np.full(len(grid), ps_memory_bytes)
        zeros = np.zeros(len(grid))  # until the allocations are priced
        scored = Scored(
            grid=grid,
            columns=columns,
            throughput=throughput,
            lower=lower,
            upper=upper,
            slowest=slowest,
            worker_memory_bytes=worker_memory,
            ps_memory_bytes=ps_memory,
            hosts=zeros,
            price_per_hour=zeros,
            time_s=zeros,
            cost=zeros,
            latest_time_s=zeros,
            meets_deadline=zeros > 0,
            objective=zeros,
            objective_lower=zeros,
            objective_upper=zeros,
        )
        return self.price(scored)

    def price(self, scored: Scored) -> Scored:
        """Return allocations, whose throughput and memory are predicted, with the prices and times of this scorer."""
        job, grid = self.job, scored.grid
        hosts, price = self._hosts_and_price(grid, scored.worker_memory_bytes, scored.ps_memory_bytes)
        times = Times(job, self.offer)
        time_s = times.mean_s(scored.throughput, hosts)

        def objective(rates: Floats) -> Floats:
            each_s = times.mean_s(rates, hosts)
            return objective_value(job.objective, each_s, cost_of(each_s, price))

        return replace(
            scored,
            hosts=hosts,
            price_per_hour=price,
            time_s=time_s,
            cost=cost_of(time_s, price),
            latest_time_s=times.mean_s(scored.slowest, hosts),
            meets_deadline=self._meets_deadline(scored, times, hosts),
            objective=objective(scored.throughput),
            objective_lower=objective(scored.upper),
            objective_upper=objective(scored.lower),
        )

    def _meets_deadline(self, scored: Scored, times: Times, hosts: Floats) -> NDArray[np.bool_]:
        """Return which allocations (n,) complete by the deadline with probability 0.9; all without the objective."""
        deadline_s = self.job.deadline
        if self.job.objective != "deadline" or deadline_s is None:
            return np.ones(len(hosts), bool)
        meets = np.asarray(times.work_s(scored.slowest) <= deadline_s)
        if times.interrupted:
            rows = np.flatnonzero(meets & np.isfinite(hosts))
            rates = scored.throughput[rows], scored.upper[rows], scored.slowest[rows]
            probability = times.probability_within(deadline_s, *rates, hosts[rows])
            meets = np.zeros(len(hosts), bool)
            meets[rows] = probability >= DEADLINE_PROBABILITY
        return meets

    def latest_s(self, scored: Scored, row: int) -> float:
        """Return the seconds within which the job completes with probability 0.9 at one of the allocations."""
        rates = scored.throughput[[row]], scored.upper[[row]], scored.slowest[[row]]
        return Times(self.job, self.offer).latest_s(*rates, scored.hosts[[row]])

    def floor_bytes(self, role: Role, grid: Grid) -> Floats:
        """Return the least bytes per replica (n,) that a command needs by the description beside it; 0 without one."""
        if self.job.command is None or not self.job.describes_tables:
            return np.zeros(len(grid))
        described, limits = DescribedMemory(self.job), getattr(self.job.bounds, role).memory_bytes
        if role == "worker":
            return round_within_bounds(described.worker_request_bytes(grid.batch_size, grid.workers), limits)
        needed = described.ps_request_bytes(np.maximum(grid.ps, 1), grid.workers)
        return np.where(grid.ps > 0, round_within_bounds(needed, limits), 0.0)

    def _request(self, role: Role, predicted: Floats, grid: Grid) -> Floats:
        bounds: RoleBounds = getattr(self.job.bounds, role)
        if self.memory.known(role):
            return round_within_bounds(predicted, bounds.memory_bytes)
        unset = bounds.memory_bytes == RoleBounds().memory_bytes
        return np.maximum(0.0 if unset else float(bounds.memory_bytes[1]), self.floor_bytes(role, grid))

    def prices_replicas(self, grid: Grid) -> bool:
        """Return whether a replica has one price: only the numbers of replicas are known, and the job sets no prices.

        Otherwise cores, memory and GPUs have prices. Those include the assumed cores if one role's are unknown.
        """
        roles = {"worker", "ps"} if self.job.has_ps else {"worker"}
        return (
            self.offer is None
            and self.unknown_cores >= roles
            and self.job.prices == Prices()
            and not grid.worker_gpu.any()
        )

    def _hosts_and_price(self, grid: Grid, worker_memory: Floats, ps_memory: Floats) -> tuple[Floats, Floats]:
        """Return the number of whole hosts (n,), 0 if only replicas have a price, and the price per hour (n,)."""
        if self.offer:
            replicas = replicas_of(grid, worker_memory, ps_memory)
            hosts = pack(self.job, [self.offer.host], *replicas, any_number=True).hosts
            return hosts, hosts * self.offer.price_hour if self.offer.price_hour else np.where(
                hosts < np.inf, 0.0, hosts
            )
        if self.prices_replicas(grid):
            return np.zeros(len(grid)), (grid.workers + grid.ps) * REPLICA_HOUR
        return np.zeros(len(grid)), grid_price(self.job, grid, worker_memory, ps_memory)


def grid_price(job: Job, grid: Grid, worker_memory_bytes: Floats, ps_memory_bytes: Floats) -> Floats:
    """Return the price per hour of each allocation (n,), given the bytes of one replica of each role."""
    memory_bytes = grid.memory_bytes(worker_memory_bytes, ps_memory_bytes)
    return hourly_price(job.prices, cores=grid.cores, memory_bytes=memory_bytes, gpus=grid.gpus) + sides_price(job)


def hosts_with_links(cluster: Cluster | None) -> list[HostKind]:
    """Return the kinds of hosts that the cluster has, and whose link it declares."""
    return [host for host in cluster.hosts if host.count and host.network_gbps] if cluster else []


def _with_links(columns: Columns, cluster: Cluster | None) -> Columns:
    """Add the bandwidth of the slowest link that the cluster declares, and the number of workers that share one.

    Workers are assumed to fill one host before the next, which is the worst case for a link.
    """
    linked = hosts_with_links(cluster)
    if not linked:
        return columns
    slowest = min(linked, key=lambda host: (host.network_gbps, -host.cpu))
    workers = columns["workers"]
    workers_per_host = np.maximum(np.floor(slowest.cpu / columns["worker_cpu"] + 1e-9), 1.0)
    return {
        **columns,
        "network_gbps": np.full(len(workers), slowest.network_gbps),
        "workers_per_host": np.minimum(workers, workers_per_host),
    }


def roles_without_cores(job: Job, trials: Sequence[Trial]) -> frozenset[Role]:
    """Return the roles of the job whose cores no trial records; none if there are no trials."""
    roles: tuple[Role, ...] = ("worker", "ps") if job.has_ps else ("worker",)
    return frozenset(
        role for role in roles if trials and all(getattr(trial, f"{role}_cpu") is None for trial in trials)
    )


def assumed_cores(bounds: RoleBounds) -> float:
    """Return the cores of a replica that are assumed where a trial does not record them: 1, or the nearest bound."""
    return float(np.clip(1.0, *bounds.cpu))


def _with_fixed_cores(job: Job, roles: frozenset[Role]) -> Bounds:
    """Return the bounds with the assumed cores of these roles."""
    fixed: dict[str, RoleBounds] = {}
    for role in roles:
        bounds: RoleBounds = getattr(job.bounds, role)
        cores = assumed_cores(bounds)
        fixed[role] = bounds.model_copy(update={"cpu": (cores, cores)})
    return job.bounds.model_copy(update=fixed)
