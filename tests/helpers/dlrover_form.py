"""The form of the dlrover model in plain Python with known coefficients, as a reference for tests."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

KNOWN = {
    "beta": 0.004, "compute": 3e-5, "update": 0.002, "synchronisation": 0.0015, "look_up": 4e-6, "table_size": 1.5e-6,
}  # fmt: skip


def step_seconds(row: dict[str, Any], coefficients: dict[str, float] = KNOWN) -> float:
    w, p, m = row["workers"], row["ps"], row["batch_size"]
    worker_cores, ps_cores = row["worker_cpu"], row["ps_cpu"]
    return (
        coefficients["beta"]
        + coefficients["compute"] * m / worker_cores
        + coefficients["update"] * w / (p * ps_cores)
        + coefficients["synchronisation"] * w / p
        + coefficients["look_up"] * m / p
        + coefficients["table_size"] * m * math.log2(1 + row["embedding_bytes"] / (p * 2**20)) / (p * ps_cores)
    )


def throughput(row: dict[str, Any], coefficients: dict[str, float] = KNOWN) -> float:
    return float(row["workers"] * row["batch_size"] / step_seconds(row, coefficients))


def allocations(count: int, seed: int = 0, **fixed: float) -> list[dict[str, Any]]:
    """Draw distinct allocations from a product of axes."""
    axes: dict[str, list[Any]] = {
        "workers": [1, 2, 3, 5], "ps": [1, 2, 3], "worker_cpu": [0.25, 0.5, 1.0, 2.0], "ps_cpu": [0.2, 0.5, 1.0],
        "batch_size": [128, 512, 1024], "embedding_bytes": [10**7, 10**8, 10**9],
    } | {name: [value] for name, value in fixed.items()}  # fmt: skip
    every = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return random.Random(seed).sample(every, min(count, len(every)))


def measured(count: int, seed: int = 0, coefficients: dict[str, float] = KNOWN, **fixed: float) -> list[dict[str, Any]]:
    """Return noise-free measurements."""
    rows = allocations(count, seed, **fixed)
    return [row | {"throughput": throughput(row, coefficients)} for row in rows]
