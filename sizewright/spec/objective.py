"""Objectives and prices, defined once: planner, recommender, controller and regret call these functions.

    T = samples / throughput      C = T/3600 · (cores · core_hour + GiB · gib_hour + GPUs · gpu_hour)

T is the completion time in seconds, C the cost in the currency of the prices. `time` minimises T, `cost` C, `balanced`
T · C, and `deadline` C among the choices that meet the deadline. All functions take numbers or arrays of one shape.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sizewright.formatting import GIB
from sizewright.spec.allocation import Allocation
from sizewright.spec.cluster import HostKind
from sizewright.spec.job import Job, Objective, Prices

Floats = NDArray[np.float64]
Values = TypeVar("Values", float, Floats)

OPENCOST_PRICES = Prices(core_hour=0.0316, gib_hour=0.0042, gpu_hour=0.95)
"""The prices of a host that has none of its own: OpenCost's defaults, in dollars."""
DEADLINE_PROBABILITY = 0.9
"""With the objective `deadline` the job completes by its deadline with at least this probability."""
DEADLINE_COVERAGE = 2 * DEADLINE_PROBABILITY - 1
"""P(T ≤ deadline) ≥ 0.9 is a one-sided bound: the end of a two-sided interval of coverage 0.8."""
REPLICA_HOUR = 1.0
"""Price of a replica where only the numbers of replicas are known and the job has no prices of its own."""


def hourly_price(
    prices: Prices, *, cores: Values, memory_bytes: Values | float = 0.0, gpus: Values | float = 0.0
) -> Values:
    """Return the price of the given total cores, bytes and GPUs, in currency per hour."""
    return cores * prices.core_hour + memory_bytes / GIB * prices.gib_hour + gpus * prices.gpu_hour


def allocation_price(allocation: Allocation, prices: Prices) -> float:
    """Return the price of all replicas of an allocation, in currency per hour."""
    return hourly_price(
        prices, cores=allocation.cores(), memory_bytes=allocation.memory_bytes(), gpus=allocation.gpus()
    )


def host_price(host: HostKind) -> float:
    """Return the price of an hour of a host: its own, or what its cores, memory and GPUs cost by OpenCost's prices."""
    if host.price_hour is not None:
        return host.price_hour
    gpus = host.gpu.count if host.gpu else 0
    return hourly_price(OPENCOST_PRICES, cores=host.cpu, memory_bytes=host.memory_bytes, gpus=gpus)


def sides_price(job: Job) -> float:
    """Return the price of the job's chief and evaluator, whose number and size are fixed, in currency per hour."""
    sides = job.with_sides(Allocation(worker=(), batch_size=1))
    return allocation_price(sides, job.prices)


def completion_time_s(samples: float, throughput: Values) -> Values:
    """Return the seconds that `samples` take at a throughput in samples/s."""
    return samples / throughput


def cost_of(time_s: Values, price_per_hour: Values | float) -> Values:
    """Return the cost of `time_s` seconds, in currency."""
    return time_s / 3600 * price_per_hour


def objective_value(objective: Objective, time_s: Values, cost: Values) -> Values:
    """Return the objective, where less is better; for `deadline` it is the cost."""
    if objective == "time":
        return time_s
    return time_s * cost if objective == "balanced" else cost


def log_objective(objective: Objective, log_throughput: Floats, log_price: Floats) -> Floats:
    """Return the logarithm of the objective up to a constant that no choice changes; arrays broadcast."""
    if objective == "time":
        return -log_throughput
    return log_price - (2 if objective == "balanced" else 1) * log_throughput


def regret(objective: Objective, log_excess: Floats) -> Floats:
    """Return the regret, as a share, of a choice whose log objective exceeds that of the best one by `log_excess`.

    It is the objective over the best one's, minus 1; for `time` it is the share of the throughput that is lost.
    """
    return np.asarray(-np.expm1(-log_excess) if objective == "time" else np.expm1(log_excess))
