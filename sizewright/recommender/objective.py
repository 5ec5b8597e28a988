"""What a job wants to be least: T, C, T·C, or C within a deadline.

    T = samples / throughput      C = T/3600 · (cores·core_hour + GiB·gib_hour + GPUs·gpu_hour)

T in seconds, C in the currency of the prices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.recommender.grid import Grid
from sizewright.spec import Allocation, Job, Objective, Prices
from sizewright.spec.units import GIB

Floats = NDArray[np.float64]

# P(T ≤ deadline) ≥ 0.9 is a one-sided bound: the end of a two-sided interval of coverage 0.8.
DEADLINE_COVERAGE = 0.8


def hourly_price(grid: Grid, worker_memory_bytes: Floats, ps_memory_bytes: Floats, prices: Prices) -> Floats:
    """Currency per hour of each allocation (n,)."""
    cores = grid.workers * grid.worker_cpu + grid.ps * grid.ps_cpu
    gib = (grid.workers * worker_memory_bytes + grid.ps * ps_memory_bytes) / GIB
    return cores * prices.core_hour + gib * prices.gib_hour


def price_of(allocation: Allocation, prices: Prices) -> float:
    """Currency per hour of one allocation, with its GPUs."""
    of_cpu = allocation.cores() * prices.core_hour + allocation.memory_bytes() / GIB * prices.gib_hour
    return of_cpu + allocation.gpus() * prices.gpu_hour


def sides_price(job: Job) -> float:
    """Currency per hour of a chief and an evaluator, whatever the rest is."""
    sides = [side for side in (job.command.chief, job.command.evaluator) if side] if job.command else []
    return sum(s.cpu * job.prices.core_hour + s.memory_bytes / GIB * job.prices.gib_hour for s in sides)


def completion_time_s(job: Job, throughput: Floats) -> Floats:
    """Seconds for the job's samples (n,)."""
    return job.training.samples / throughput


def score(objective: Objective, time_s: Floats, price_per_hour: Floats) -> Floats:
    """The objective's value (n,), least is best; for `deadline` it is the cost, deadlines being a cap."""
    cost = time_s / 3600 * price_per_hour
    if objective == "time":
        return time_s
    if objective == "balanced":
        return time_s * cost
    return cost
