"""Score allocations inside the bounds: predict throughput, memory, price and objective of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models.memory._base import MemoryForecast, round_within_bounds
from sizewright.models.memory.described import DescribedMemory
from sizewright.models.table import Columns
from sizewright.recommender.sizing.grid import Grid, Ranges, make_grid
from sizewright.spec import Bounds, Cluster, HostKind, Job, Prices, Role, RoleBounds
from sizewright.spec.objective import (
    DEADLINE_COVERAGE,
    REPLICA_HOUR,
    completion_time_s,
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
    latest_time_s: Floats
    """Seconds within which the job completes with probability 0.9."""
    price_per_hour: Floats
    cost: Floats
    worker_memory_bytes: Floats
    ps_memory_bytes: Floats
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

    The model sees the links that `cluster` declares. Replicas of the roles in `unknown_cores`, whose cores no trial
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
    ) -> None:
        self.job = job
        self.model = model
        self.memory = memory
        self.embedding_bytes = embedding_bytes
        self.unknown_cores = unknown_cores
        self.cluster = cluster

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
        job = self.job
        columns = _with_links(grid.columns(self.embedding_bytes), self.cluster)
        throughput, lower, upper = self.model.predict_with_interval(columns, COVERAGE)
        slowest = lower
        if job.objective == "deadline":
            slowest, _ = self.model.predict_interval(columns, DEADLINE_COVERAGE)
        worker_memory = self._request("worker", self.memory.worker_request_bytes(grid.batch_size, grid.loaders), grid)
        ps_memory = self._request("ps", self.memory.ps_request_bytes(grid.ps, grid.workers, grid.batch_size), grid)
        if worker_memory_bytes is not None:
            worker_memory = np.full(len(grid), worker_memory_bytes)
        if ps_memory_bytes is not None:
            ps_memory = np.full(len(grid), ps_memory_bytes)
        price = self._price(grid, worker_memory, ps_memory)
        samples = job.samples or 1  # where the number is unknown, times of one sample rank in the same order

        def objective(rates: Floats) -> Floats:
            time = completion_time_s(samples, rates)
            return objective_value(job.objective, time, cost_of(time, price))

        return Scored(
            grid=grid,
            columns=columns,
            throughput=throughput,
            lower=lower,
            upper=upper,
            latest_time_s=completion_time_s(samples, slowest),
            price_per_hour=price,
            cost=cost_of(completion_time_s(samples, throughput), price),
            worker_memory_bytes=worker_memory,
            ps_memory_bytes=ps_memory,
            objective=objective(throughput),
            objective_lower=objective(upper),
            objective_upper=objective(lower),
        )

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
        return self.unknown_cores >= roles and self.job.prices == Prices() and not grid.worker_gpu.any()

    def _price(self, grid: Grid, worker_memory: Floats, ps_memory: Floats) -> Floats:
        if self.prices_replicas(grid):
            return (grid.workers + grid.ps) * REPLICA_HOUR
        return grid_price(self.job, grid, worker_memory, ps_memory)


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
