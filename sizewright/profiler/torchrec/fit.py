"""Fit constants of the planner to measured steps: non-negative least squares of relative errors.

A step takes the time of its slowest rank, and the time of each rank is linear in the inverse bandwidths and the fixed
times. Which rank is slowest depends on the constants, so the fit is repeated with the slowest ranks of the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

Floats = NDArray[np.float64]

_ROUNDS = 30
_SMALLEST_ERROR = 0.05
"""Errors below this all weigh alike; larger ones less, since other work on a host lengthens single steps."""
_STORAGE_WEIGHT = 0.03
_KERNELS = {"fused": "fused_pass", "data_parallel": "dense_pass"}
"""The kernels, with the pass over memory that coefficients are relative to; only data-parallel tables are not fused."""
_SIZES = ("input", "lookup", "output")
COSTS = (
    *(f"{kernel}_{size}" for kernel in _KERNELS for size in _SIZES),
    "fused_pass", "dense_pass", "all_to_all", "reduce_scatter", "all_reduce",
    "distinct_row_ms", "shard_ms", "table_ms", "step_ms", "exchange_ms", "data_parallel_ms",
)  # fmt: skip
"""What is fitted: ms for each byte, and ms for each row, shard, table, step and exchange. Steps are linear in them."""
_ID_MS = 1e-3
"""The order of what an id or a row costs beyond its bytes."""
_FIXED = ("distinct_row_ms", "shard_ms", "table_ms", "step_ms", "exchange_ms", "data_parallel_ms")


class Prior(NamedTuple):
    """What is known of the costs (k,) before any step: `expected` ones, their `scale`, and how much that weighs.

    The weight is that of a deviation by one scale, against the relative error of one step.
    """

    expected: Floats
    scale: Floats
    weight: Floats


def prior_costs(probes: Mapping[str, float]) -> Prior:
    """Return the costs that measured bandwidths suggest: those of collectives are unknown for one rank.

    What a single id, row, table or step takes is unknown, and 0 unless the steps show it.
    """
    lookup, memory = 1 / probes["lookup"], 1 / probes["memory"]
    rows = []
    for name in COSTS:
        if name.endswith("_input"):
            rows.append((0.0, _ID_MS / 8, 0.05))  # an id has 8 bytes
        elif name == "distinct_row_ms":
            rows.append((0.0, _ID_MS, 0.01))
        elif name.endswith("_ms"):
            rows.append((0.0, 1.0, 0.01))
        elif name.endswith(("_lookup", "_output")):
            rows.append((lookup, lookup, 0.03))
        else:
            bandwidth = 1 / probes[name] if name in probes else memory
            rows.append((bandwidth, bandwidth, 0.03))
    return Prior(*np.array(rows).T)


def constants_of(costs: Floats, bwd_compute_multiplier: float, memory_bandwidth: float) -> dict[str, float]:
    """Return the constants of the planner file that amount to some costs."""
    cost = dict(zip(COSTS, map(float, costs), strict=True))
    both = 1 + bwd_compute_multiplier  # a coefficient counts in the forward and, times the multiplier, in the backward
    coefficients = {
        f"{kernel}_{size}": cost[f"{kernel}_{size}"] / cost[relative_to] / both
        for kernel, relative_to in _KERNELS.items()
        for size in _SIZES
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


def fit_costs(times_by_cost: Sequence[Floats], measured: Floats, prior: Prior) -> Floats:
    """Return the costs (k,) with which the slowest ranks' times come closest to the `measured` steps (n,).

    `times_by_cost` has for each step a matrix (ranks, k): the time of a rank for one unit of each cost. The `prior`
    settles what the steps do not tell. Passes over memory keep a fiftieth of theirs at least, since all coefficients
    are relative to them.
    """
    lower = np.where(np.isin(COSTS, list(_KERNELS.values())), 0.02, 0.0)
    expected = prior.expected / prior.scale
    costs, weights = np.maximum(expected, 0.1), np.ones(len(measured))
    for _ in range(_ROUNDS):
        slowest = [each[int(np.argmax(each @ (costs * prior.scale)))] * prior.scale for each in times_by_cost]
        rows = np.stack(slowest) / measured[:, None]
        answer = lsq_linear(
            np.vstack([rows * weights[:, None], np.diag(prior.weight)]),
            np.concatenate([weights, prior.weight * expected]),
            bounds=(lower, np.inf),
        )
        costs = answer.x
        weights = _weights(rows @ costs - 1)
    return cast(Floats, costs * prior.scale)


def step_times(times_by_cost: Sequence[Floats], costs: Floats) -> Floats:
    """Return the time of each step (n,) with some costs."""
    return np.array([float((each @ costs).max()) for each in times_by_cost])


def fit_storage(counted: Floats, measured: Floats) -> Floats:
    """Return the factors (2,) of counted bytes (n, 2) with which they come closest to the `measured` bytes (n,).

    They are at least 1: what is counted is there, and too little memory costs more than too much.
    """
    parts = counted.shape[1]
    weights, factors = np.ones(len(measured)), np.ones(parts)
    rows = counted / measured[:, None]
    for _ in range(_ROUNDS):
        answer = lsq_linear(
            np.vstack([rows * weights[:, None], np.eye(parts) * _STORAGE_WEIGHT]),
            np.concatenate([weights, np.full(parts, _STORAGE_WEIGHT)]),
            bounds=(1.0, np.inf),
        )
        factors = answer.x
        weights = _weights(rows @ factors - 1)
    return cast(Floats, factors)


def _weights(errors: Floats) -> Floats:
    return np.sqrt(_SMALLEST_ERROR / np.maximum(np.abs(errors), _SMALLEST_ERROR))
