"""What an allocation loses against the best of a measured table, as the objectives count it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.profiler.candidates import Candidates
from sizewright.profiler.measured_table import MeasuredTable
from sizewright.profiler.objective import SHARE_OF_BEST
from sizewright.spec import Objective
from sizewright.spec.objective import log_objective, regret

Floats = NDArray[np.float64]

SCORINGS: dict[str, Objective] = {"time": "time", "balanced": "balanced", "reach80": "deadline"}
"""Each with the objective that a planner is given for it."""
_FAILED = 1.0


class Truth(NamedTuple):
    """A table's samples/s (n,) and hourly prices (n,)."""

    throughput: Floats
    hourly_price: Floats

    def regret(self, pick: int, scoring: str) -> float:
        """What a pick loses: throughput for `time`, time × cost for `balanced`, as a share.

        For `reach80` it is the cost beyond that of the cheapest that reaches 80 % of the best, plus the throughput that
        is lacking to these 80 %. A pick that fails loses as much as the worst, and all at least.
        """
        there = self.throughput > 0
        regrets = self._regrets(there, scoring)
        if not there[pick]:
            return max(_FAILED, float(regrets.max()))
        return float(regrets[np.count_nonzero(there[:pick])])

    def _regrets(self, there: NDArray[np.bool_], scoring: str) -> Floats:
        rate, price = self.throughput[there], self.hourly_price[there]
        if scoring != "reach80":
            losses = log_objective(SCORINGS[scoring], np.log(rate), np.log(np.maximum(price, 1e-12)))
            return regret(SCORINGS[scoring], losses - losses.min())
        needed = SHARE_OF_BEST * rate.max()
        cheapest = (price / rate)[rate >= needed].min()
        return np.asarray(np.maximum(price / rate / cheapest - 1, 0.0) + np.maximum(1 - rate / needed, 0.0))


def truths(table: MeasuredTable) -> dict[str, Truth]:
    """`smoothed` and `raw`."""
    price = Candidates(table.allocations).hourly_price
    return {"smoothed": Truth(table.smoothed[0], price), "raw": Truth(table.raw, price)}
