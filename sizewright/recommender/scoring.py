"""Allocations inside the bounds, with what is predicted of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models._memory import MemoryForecast, whole_steps
from sizewright.models.table import Columns
from sizewright.recommender.grid import Grid, Ranges, make_grid
from sizewright.recommender.links import with_links
from sizewright.spec import Bounds, Cluster, Job, Prices, Role, RoleBounds
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
    """Allocations with what is predicted of each; columns (n,)."""

    grid: Grid
    columns: Columns
    """As the model was asked."""
    throughput: Floats
    lower: Floats
    upper: Floats
    latest_time_s: Floats
    """By which the job is done with probability 0.9."""
    price_per_hour: Floats
    cost: Floats
    worker_memory_bytes: Floats
    ps_memory_bytes: Floats
    objective: Floats
    objective_lower: Floats
    objective_upper: Floats

    def best(self, among: NDArray[np.int64] | None = None) -> int:
        """Return the row with the least objective, of all or of some; where it cannot tell but for rounding (with
        prices of 0, say), the fastest."""
        rows = np.arange(len(self.objective)) if among is None else among
        tied = rows[self.objective[rows] <= self.objective[rows].min() * (1 + _ROUNDING)]
        return int(tied[np.argmax(self.throughput[tied])])

    def joined(self, other: Scored) -> Scored:
        """Return the rows of both."""

        def both(mine: Any, others: Any) -> Any:
            if isinstance(mine, Grid):
                return Grid(**both(vars(mine), vars(others)))
            if isinstance(mine, dict):
                return {name: both(mine[name], others[name]) for name in mine}
            return np.concatenate([mine, others])

        return Scored(**both(vars(self), vars(other)))


class Scorer:
    """Predicts throughput, memory, price and objective of allocations by a fitted model.

    `cluster` tells the links that replicas will have, where it does. With `counts_only` no trial tells its cores;
    without prices of the job's own a replica then costs 1 an hour.
    """

    def __init__(
        self,
        job: Job,
        model: BaseThroughputModel,
        memory: MemoryForecast,
        embedding_bytes: float,
        *,
        counts_only: bool = False,
        cluster: Cluster | None = None,
    ) -> None:
        self.job, self.model, self.memory = job, model, memory
        self.embedding_bytes, self.counts_only, self.cluster = embedding_bytes, counts_only, cluster

    def grid(self, trials: Sequence[Trial], measured: Ranges) -> Grid:
        """Return the allocations within the job's bounds, with room to choose around what was measured."""
        bounds = _at_one_size(self.job) if self.counts_only else self.job.bounds
        batch_size = self.job.training.batch_size
        return make_grid(bounds, batch_size, has_ps=self.job.has_ps, trials=trials, measured=measured)

    def score(self, grid: Grid) -> Scored:
        """Return the allocations with what is predicted of each."""
        job = self.job
        columns = with_links(grid.columns(self.embedding_bytes), self.cluster)
        throughput, lower, upper = self.model.predict_with_interval(columns, COVERAGE)
        slowest = lower
        if job.objective == "deadline":
            slowest, _ = self.model.predict_interval(columns, DEADLINE_COVERAGE)
        worker_memory = self._request("worker", self.memory.worker_request_bytes(grid.batch_size))
        ps_memory = self._request("ps", self.memory.ps_request_bytes(grid.ps, grid.workers, grid.batch_size))
        price = self._price(grid, worker_memory, ps_memory)
        samples = job.samples or 1  # where they are unknown, those of each sample rank alike
        times = [completion_time_s(samples, rates) for rates in (throughput, upper, lower, slowest)]
        values = [objective_value(job.objective, time, cost_of(time, price)) for time in times[:3]]
        return Scored(
            grid, columns, throughput, lower, upper, times[3], price, cost_of(times[0], price), worker_memory,
            ps_memory, *values,
        )  # fmt: skip

    def _request(self, role: Role, wanted: Floats) -> Floats:
        bounds: RoleBounds = getattr(self.job.bounds, role)
        if self.memory.known(role):
            return whole_steps(wanted, bounds.memory_bytes)
        unset = bounds.memory_bytes == RoleBounds().memory_bytes
        return np.full_like(wanted, 0.0 if unset else float(bounds.memory_bytes[1]))

    def _price(self, grid: Grid, worker_memory: Floats, ps_memory: Floats) -> Floats:
        if self.counts_only and self.job.prices == Prices() and not grid.worker_gpu.any():
            return (grid.workers + grid.ps) * REPLICA_HOUR
        return grid_price(self.job, grid, worker_memory, ps_memory)


def grid_price(job: Job, grid: Grid, worker_memory_bytes: Floats, ps_memory_bytes: Floats) -> Floats:
    """Return the price of an hour of each allocation (n,), given the bytes of one replica of each role."""
    memory_bytes = grid.memory_bytes(worker_memory_bytes, ps_memory_bytes)
    return hourly_price(job.prices, cores=grid.cores, memory_bytes=memory_bytes, gpus=grid.gpus) + sides_price(job)


def _at_one_size(job: Job) -> Bounds:
    """The bounds with every replica at the cores that trials without any are taken to have had: 1, or the nearest."""

    def fixed(role: RoleBounds) -> RoleBounds:
        cores = float(np.clip(1.0, *role.cpu))
        return role.model_copy(update={"cpu": (cores, cores)})

    return job.bounds.model_copy(update={"worker": fixed(job.bounds.worker), "ps": fixed(job.bounds.ps)})
