"""Mixed-integer programme, solved by HiGHS from a choice that is known to fit."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._dual import Prices, prices_of
from sizewright.cluster.allocators._highs import improved
from sizewright.cluster.allocators._polish import polished
from sizewright.cluster.allocators._repair import repaired
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Bools, Problem


class Mip(Allocator):
    """Begins with prices and repair; where their gap is too wide, HiGHS searches what the prices leave open.

    A candidate whose loss at the prices exceeds the whole gap is in no better choice (pegging), so that HiGHS is given
    the others only.
    """

    name = "mip"
    origin = "HiGHS"

    def __init__(self, gap: float = 1e-3) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        prices = prices_of(problem, until)
        start = polished(problem, prices, repaired(problem, prices.each, prices.choice), self.gap, until)
        answer = chosen(problem, self.name, start, bound=prices.bound, prices=prices.each)
        if (answer.gap or 0.0) <= self.gap or time.perf_counter() >= until:
            return answer
        open_ = _open(problem, prices, answer.value)
        choice, bound = improved(problem, open_, start, self.gap, until - time.perf_counter())
        if problem.fits(choice) and problem.total(choice) > answer.value:
            answer = replace(answer, choice=choice, value=problem.total(choice))
        return replace(answer, bound=max(min(prices.bound, bound), answer.value))


def _open(problem: Problem, prices: Prices, value: float) -> Bools:
    """(J, K): candidates that a choice worth more than `value` may contain."""
    left = problem.worth - problem.needs @ prices.each
    loss = left.max(axis=1, keepdims=True) - left
    return np.asarray(problem.offered & (loss <= (prices.bound - value) * (1 + 1e-9)))
