"""What links allow: trials on one host know no network, production does.

A step of one worker moves S bytes. Links carry both ways at once, and about half of S goes each way; a worker moves its
own, the PS together those of all workers:

    T_net = S/2 / B · max(1, w/p)        throughput ≤ w·m / T_net

Since rows are fetched ahead, the network binds like any other limit, smoothly: T = (T^g + T_net^g)^(1/g).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.models.table import Table, as_columns, known

Floats = NDArray[np.float64]

_BYTES_PER_GBIT = 1e9 / 8
_ONE_WAY = 0.5
_SHARPNESS = 4.0


def bytes_per_sample(trials: Table) -> float | None:
    """Median over the trials that tell what they moved; None where none does."""
    columns = as_columns(trials, ("network_bytes", "batch_size"))
    moved = columns["network_bytes"] / known(columns["batch_size"], 1.0)
    there = moved[np.isfinite(moved) & (moved > 0)]
    return float(np.median(there)) if len(there) else None


def limited(log_rates: Floats, table: Table, moved: float | None) -> Floats:
    """Logarithms of rates (d, n) behind links of the bandwidth that the table's column `network_gbps` tells, if any."""
    columns = as_columns(table, ("workers", "ps", "network_gbps"))
    gbps = columns["network_gbps"]
    if moved is None or not np.isfinite(gbps).any():
        return log_rates
    busiest = np.maximum(1.0, columns["workers"] / np.maximum(columns["ps"], 1.0))
    one_way = gbps * _BYTES_PER_GBIT / (moved * _ONE_WAY)
    most = np.log(columns["workers"] * one_way / busiest)
    both = -np.logaddexp(-_SHARPNESS * log_rates, -_SHARPNESS * most) / _SHARPNESS
    return np.where(np.isfinite(gbps), both, log_rates)
