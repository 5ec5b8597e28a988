"""Fit constants of the planner to measured steps: non-negative least squares of relative errors.

A step takes the time of its slowest rank, and the time of each rank is linear in the inverse bandwidths and the fixed
times. Which rank is slowest depends on the constants, so the fit is repeated with the slowest ranks of the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

Floats = NDArray[np.float64]

_ROUNDS = 30
_PRIOR_WEIGHT = 0.03
"""Of a constant's relative distance from its measured bandwidth, against the relative error of one step."""
_SMALLEST_ERROR = 0.05
"""Errors below this all weigh alike; larger ones less, since other work on a host lengthens single steps."""
_WAYS = ("table_wise", "row_wise", "data_parallel")
COSTS = (
    *(f"{way}_{size}" for way in _WAYS for size in ("input", "lookup", "output")),
    "fused_pass", "dense_pass", "all_to_all", "reduce_scatter", "all_reduce",
    "shard_ms", "step_ms", "exchange_ms", "data_parallel_ms",
)  # fmt: skip
"""What is fitted: ms for each byte, and four fixed times. Steps are linear in them."""
_FIXED = ("shard_ms", "step_ms", "exchange_ms", "data_parallel_ms")


def prior_costs(probes: Mapping[str, float]) -> Floats:
    """Return the costs that measured bandwidths suggest; those of collectives are unknown for one rank."""
    lookup, memory = 1 / probes["lookup"], 1 / probes["memory"]
    costs = dict.fromkeys(COSTS, lookup) | dict.fromkeys(_FIXED, 0.0)
    costs |= {"fused_pass": memory, "dense_pass": memory}
    for name in ("all_to_all", "reduce_scatter", "all_reduce"):
        costs[name] = 1 / probes[name] if name in probes else memory
    return np.array([costs[name] for name in COSTS])


def constants_of(costs: Floats, bwd_compute_multiplier: float, memory_bandwidth: float) -> dict[str, float]:
    """Return the constants of the planner file that amount to some costs."""
    cost = dict(zip(COSTS, map(float, costs), strict=True))
    passes = {"table_wise": "fused_pass", "row_wise": "fused_pass", "data_parallel": "dense_pass"}
    both = 1 + bwd_compute_multiplier  # a coefficient counts in the forward and, times the multiplier, in the backward
    coefficients = {
        f"{way}_{size}": cost[f"{way}_{size}"] / cost[passes[way]] / both
        for way in _WAYS
        for size in ("input", "lookup", "output")
    }
    bandwidths = {
        "fused_bandwidth": "fused_pass", "dense_bandwidth": "dense_pass", "all_to_all_bandwidth": "all_to_all",
        "reduce_scatter_bandwidth": "reduce_scatter", "all_reduce_bandwidth": "all_reduce",
    }  # fmt: skip
    return {
        "memory_bandwidth": memory_bandwidth,
        "bwd_compute_multiplier": bwd_compute_multiplier,
        **{name: 1 / max(cost[of], 1e-15) for name, of in bandwidths.items()},
        **coefficients,
        **{name: cost[name] for name in _FIXED},
    }


def fit_costs(times_by_cost: Sequence[Floats], measured: Floats, prior: Floats) -> Floats:
    """Return the costs (k,) with which the slowest ranks' times come closest to the `measured` steps (n,).

    `times_by_cost` has for each step a matrix (ranks, k): the time of a rank for one unit of each cost. The `prior`
    costs (k,) settle what the steps do not tell. Passes over memory keep a fiftieth of theirs at least, since all
    coefficients are relative to them.
    """
    scale = np.where(prior > 0, prior, 1.0)
    lower = np.where(np.isin(COSTS, ("fused_pass", "dense_pass")), 0.02, 0.0)
    known = np.flatnonzero(prior > 0)
    pull = np.zeros((len(known), len(prior)))
    pull[np.arange(len(known)), known] = _PRIOR_WEIGHT
    costs, weights = np.where(prior > 0, 1.0, 0.1), np.ones(len(measured))
    for _ in range(_ROUNDS):
        slowest = [each[int(np.argmax(each @ (costs * scale)))] * scale for each in times_by_cost]
        rows = np.stack(slowest) / measured[:, None]
        answer = lsq_linear(
            np.vstack([rows * weights[:, None], pull]),
            np.concatenate([weights, np.full(len(known), _PRIOR_WEIGHT)]),
            bounds=(lower, np.inf),
        )
        costs = answer.x
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ costs - 1), _SMALLEST_ERROR) / _SMALLEST_ERROR)
    return cast(Floats, costs * scale)


def step_times(times_by_cost: Sequence[Floats], costs: Floats) -> Floats:
    """Return the time of each step (n,) with some costs."""
    return np.array([float((each @ costs).max()) for each in times_by_cost])


def fit_storage(counted: Floats, measured: Floats) -> Floats:
    """Return the factors (2,) of counted bytes (n, 2) with which they come closest to the `measured` bytes (n,)."""
    weights, factors = np.ones(len(measured)), np.ones(counted.shape[1])
    rows = counted / measured[:, None]
    for _ in range(_ROUNDS):
        pull = np.diag(np.full(counted.shape[1], _PRIOR_WEIGHT))
        answer = lsq_linear(
            np.vstack([rows * weights[:, None], pull]),
            np.concatenate([weights, np.full(counted.shape[1], _PRIOR_WEIGHT)]),
            bounds=(0.0, np.inf),
        )
        factors = answer.x
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ factors - 1), _SMALLEST_ERROR) / _SMALLEST_ERROR)
    return cast(Floats, factors)
