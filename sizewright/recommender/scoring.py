"""Every allocation inside the bounds, with what is predicted of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.models._base import BaseThroughputModel
from sizewright.models._memory import MemoryForecast
from sizewright.models.table import Columns
from sizewright.recommender.grid import Grid, make_grid
from sizewright.recommender.links import with_links
from sizewright.recommender.objective import completion_time_s, hourly_price, score, sides_price
from sizewright.spec import Bounds, Cluster, Job, Prices, RoleBounds
from sizewright.spec.units import MIB

Floats = NDArray[np.float64]
COVERAGE = 0.9
MEMORY_STEP_BYTES = 64 * MIB
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Scored:
    """Every allocation with what is predicted of it; columns (n,)."""

    grid: Grid
    columns: Columns
    """As the model was asked."""
    throughput: Floats
    lower: Floats
    upper: Floats
    price_per_hour: Floats
    cost: Floats
    worker_memory_bytes: Floats
    ps_memory_bytes: Floats
    objective: Floats
    objective_lower: Floats
    objective_upper: Floats

    def best(self, among: NDArray[np.int64] | None = None) -> int:
        """The row with the least objective, of all or of some; where it cannot tell but for rounding (with prices of 0,
        say), the fastest."""
        rows = np.arange(len(self.objective)) if among is None else among
        tied = rows[self.objective[rows] <= self.objective[rows].min() * (1 + _ROUNDING)]
        return int(tied[np.argmax(self.throughput[tied])])


def score_all(
    job: Job,
    model: BaseThroughputModel,
    memory: MemoryForecast,
    embedding_bytes: float,
    *,
    counts_only: bool = False,
    cluster: Cluster | None = None,
) -> Scored:
    """Predict throughput, memory, price and objective of every allocation within the bounds.

    `cluster` tells the links that replicas will have, where it does.
    With `counts_only` no trial tells its cores; without prices of the job's own a replica then costs 1 an hour.
    """
    bounds = _at_one_size(job) if counts_only else job.bounds
    grid = make_grid(bounds, job.training.batch_size, has_ps=job.has_ps)
    columns = with_links(grid.columns(embedding_bytes), cluster)
    throughput, lower, upper = model.predict_with_interval(columns, COVERAGE)
    worker_memory = _whole_steps(memory.worker_request_bytes(grid.batch_size), job.bounds.worker.memory_bytes)
    ps_memory = _whole_steps(
        memory.ps_request_bytes(grid.ps, grid.workers, grid.batch_size), job.bounds.ps.memory_bytes
    )
    if counts_only and job.prices == Prices():
        price = grid.workers + grid.ps
    else:
        price = hourly_price(grid, worker_memory, ps_memory, job.prices) + sides_price(job)
    cost = completion_time_s(job, throughput) / 3600 * price
    values = [score(job.objective, completion_time_s(job, t), price) for t in (throughput, upper, lower)]
    return Scored(grid, columns, throughput, lower, upper, price, cost, worker_memory, ps_memory, *values)


def rounded_up(memory_bytes: float) -> int:
    """To whole steps of 64 MiB."""
    return math.ceil(memory_bytes / MEMORY_STEP_BYTES) * MEMORY_STEP_BYTES


def _at_one_size(job: Job) -> Bounds:
    """The bounds with every replica at the cores that trials without any are taken to have had: 1, or the nearest."""

    def fixed(role: RoleBounds) -> RoleBounds:
        cores = float(np.clip(1.0, *role.cpu))
        return role.model_copy(update={"cpu": (cores, cores)})

    return job.bounds.model_copy(update={"worker": fixed(job.bounds.worker), "ps": fixed(job.bounds.ps)})


def _whole_steps(wanted: Floats, bounds: tuple[int, int]) -> Floats:
    """Up to whole steps of 64 MiB, not below the bounds, and not above them where what is wanted is not."""
    least, greatest = bounds
    steps = np.ceil(wanted / MEMORY_STEP_BYTES) * MEMORY_STEP_BYTES
    requests: Floats = np.maximum(np.where(wanted <= greatest, np.minimum(steps, greatest), steps), least)
    return requests
