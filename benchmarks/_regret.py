"""The regret of an allocation against the best one of a measured table, by objective."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.profiler.planner.candidates import CandidateSet
from sizewright.profiler.planner.measured_table import MeasuredTable
from sizewright.profiler.planner.objective import SHARE_OF_BEST
from sizewright.spec import Objective
from sizewright.spec.objective import log_objective, regret

Floats = NDArray[np.float64]

SCORINGS: dict[str, Objective] = {"time": "time", "balanced": "balanced", "reach80": "deadline"}
"""Scorings of a choice, with the objective that a planner gets for each."""
_MIN_FAILURE_REGRET = 1.0
_RATE_WEIGHTS = {"time": 1.0, "balanced": 2.0}
"""How much the loss of each scoring, a logarithm, changes with log throughput."""


class Truth(NamedTuple):
    """The samples/s (n,) and hourly prices (n,) of a table's allocations.

    Allocations whose losses differ by less than the standard error of the difference are tied: the regret is 0.
    """

    throughput: Floats
    hourly_price: Floats
    sd: Floats | float = 0.0
    """Standard deviation (n,) of log throughput; 0 where all differences count."""

    def regret(self, pick: int, scoring: str) -> float:
        """Return the relative regret of a pick: of throughput for `time`, of time × cost for `balanced`.

        For `reach80` it is the excess cost over the cheapest allocation that reaches 80 % of the best throughput, plus
        the throughput missing to these 80 %. A pick that fails has the regret of the worst, and at least 1.
        """
        works = self.throughput > 0
        sd = np.broadcast_to(self.sd, len(works))[works]
        regrets = self._regrets(self.throughput[works], self.hourly_price[works], sd, scoring)
        if not works[pick]:
            return max(_MIN_FAILURE_REGRET, float(regrets.max()))
        return float(regrets[np.count_nonzero(works[:pick])])

    def reach80(self, pick: int) -> tuple[bool, float]:
        """Return whether a pick falls short of 80 % of the best throughput, and its excess cost over the cheapest.

        The cheapest is the allocation with the lowest cost among those that reach the 80 %. The excess is NaN for a
        pick that falls short.
        """
        best = int(np.argmax(self.throughput))
        needed = SHARE_OF_BEST * self.throughput[best]
        sd = np.broadcast_to(self.sd, len(self.throughput))
        reaches = self.throughput * np.exp(np.hypot(sd, sd[best])) >= needed
        if not reaches[pick]:
            return True, float("nan")
        cost = self.hourly_price / np.maximum(self.throughput, 1e-12)
        return False, max(0.0, float(cost[pick] / cost[self.throughput >= needed].min() - 1))

    def _regrets(self, rate: Floats, price: Floats, sd: Floats, scoring: str) -> Floats:
        if scoring != "reach80":
            losses = log_objective(SCORINGS[scoring], np.log(rate), np.log(np.maximum(price, 1e-12)))
            excess = losses - losses.min()
            weight = _RATE_WEIGHTS[scoring]
            tied = excess < weight * np.hypot(sd, sd[np.argmin(losses)])
            return regret(SCORINGS[scoring], np.where(tied, 0.0, excess))
        needed = SHARE_OF_BEST * rate.max()
        cheapest = (price / rate)[rate >= needed].min()
        return np.asarray(np.maximum(price / rate / cheapest - 1, 0.0) + np.maximum(1 - rate / needed, 0.0))


def truths(table: MeasuredTable) -> dict[str, Truth]:
    """Return the ground truths of a table by name: `robust`, `old` (as measured, without ties) and `raw`."""
    price = CandidateSet(table.allocations).hourly_price
    return {
        "robust": Truth(table.smoothed.throughput, price, table.smoothed.sd),
        "old": Truth(table.smoothed_as_measured.throughput, price),
        "raw": Truth(table.raw, price),
    }
