"""The throughput that network links allow: trials on one host use no network, production does.

A step of one worker moves S bytes, half of them each way. Links carry both ways at once, but a worker fetches rows and
sends gradients one after the other. The busiest link is the worker's own, that of a host with k workers, or
that of a PS, which serves w/p workers:

    T_net = S/2 / (e·B) · max(2, k, w/p)        throughput ≤ w·m / T_net

The reachable share e of a link's bandwidth was fitted to the grid of workers and PS in `benchmarks/tables`, measured
behind links of 80 Mbit/s. Since rows are fetched ahead, the network limits throughput smoothly, like any other limit:
T = (T^g + T_net^g)^(1/g).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from sizewright.models.axes import check_columns
from sizewright.models.table import Table, as_columns, filled

Floats = NDArray[np.float64]

_BYTES_PER_GBIT = 1e9 / 8
_REACHABLE_SHARE = 0.7
_REACHABLE_SD = 0.2
_SHARPNESS = 6.0


class Traffic(NamedTuple):
    """Bytes that a step of one worker moves: `batch_bytes` at `batch_size` samples, growing with batch_size^`exponent`.

    Trials that ran behind links of `measured_gbps` already contain the effect of links as fast as these.
    """

    batch_bytes: float
    batch_size: float
    exponent: float
    measured_gbps: float

    @classmethod
    def of(cls, trials: Table) -> Self | None:
        """Return the traffic of trials; None where no trial has `network_bytes`."""
        columns = as_columns(trials, ("network_bytes", "batch_size", "network_gbps"))
        check_columns(columns)
        has_traffic = (columns["network_bytes"] > 0) & (columns["batch_size"] > 0)
        if not has_traffic.any():
            return None
        log_bytes, log_batch = (np.log(columns[name][has_traffic]) for name in ("network_bytes", "batch_size"))
        middle = float(np.median(log_batch))
        exponent = float(np.clip(np.polyfit(log_batch, log_bytes, 1)[0], 0.0, 1.0)) if np.ptp(log_batch) > 0 else 1.0
        log_middle = float(np.median(log_bytes - exponent * (log_batch - middle)))
        linked = columns["network_gbps"][np.isfinite(columns["network_gbps"])]
        return cls(float(np.exp(log_middle)), float(np.exp(middle)), exponent, float(min(linked, default=np.inf)))

    def log_limit(self, table: Table) -> Floats:
        """Return the log samples/s (n,) that links of `network_gbps` allow; infinite where the column is empty.

        `workers_per_host` is the number of workers that share a link, by default 1.
        """
        columns = as_columns(table, ("workers", "ps", "batch_size", "network_gbps", "workers_per_host"))
        check_columns(columns)
        gbps, workers = columns["network_gbps"], columns["workers"]
        linked = (gbps < self.measured_gbps) & ((columns["ps"] > 0) | (workers > 1))
        batch = filled(columns["batch_size"], self.batch_size)
        step_bytes = self.batch_bytes * (batch / self.batch_size) ** self.exponent
        per_ps = workers / np.where(columns["ps"] > 0, columns["ps"], np.inf)
        busiest = np.maximum(np.maximum(2.0, filled(columns["workers_per_host"], 1.0)), per_ps)
        log_limit = np.log(_REACHABLE_SHARE * gbps * _BYTES_PER_GBIT / (step_bytes / 2 * busiest) * workers * batch)
        return np.where(linked, log_limit, np.inf)


def limit_by_links(log_rates: Floats, log_limit: Floats) -> tuple[Floats, Floats]:
    """Return log rates (d, n) behind links that allow `log_limit` (n,), and the variance (n,) that this adds."""
    if np.isposinf(log_limit).all():
        return log_rates, np.zeros_like(log_limit)
    limited = -np.logaddexp(-_SHARPNESS * log_rates, -_SHARPNESS * log_limit) / _SHARPNESS
    binding = np.exp(_SHARPNESS * (limited - log_limit)).mean(axis=0)
    return limited, (_REACHABLE_SD * binding) ** 2
