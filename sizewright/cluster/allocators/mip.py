"""Mixed-integer programme, solved by HiGHS from a choice that is known to fit."""

from __future__ import annotations

import time
from dataclasses import replace

from sizewright.cluster.allocators._base import Allocator, in_units, normal
from sizewright.cluster.allocators._dual import Prices, open_at, prices_of
from sizewright.cluster.allocators._highs import improved
from sizewright.cluster.allocators._polish import polished
from sizewright.cluster.allocators._repair import repaired
from sizewright.cluster.allotment import OUT_OF_TIME, Allotment, chosen
from sizewright.cluster.problem import Problem

SLICES = (0.2, 1.0)
"""Of the time that is left: what the first search finds leaves less open to the second."""


class Mip(Allocator):
    """Begins with prices and repair; where their gap is too wide, HiGHS searches what the prices leave open to choices
    that are better by more than the gap which is wanted."""

    name = "mip"
    origin = "HiGHS"
    by_value = True

    def __init__(self, gap: float = 1e-3) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        scaled, unit = normal(problem)
        prices = prices_of(scaled, until)
        start = polished(scaled, prices, repaired(scaled, prices.each, prices.choice), self.gap, until)
        answer = chosen(scaled, self.name, start, bound=prices.bound, prices=prices.each)
        for share in SLICES:
            left_s = until - time.perf_counter()
            if (answer.gap or 0.0) <= self.gap or left_s <= 0:
                break
            answer = self._searched(scaled, prices, answer, share * left_s)
        if (answer.gap or 0.0) > self.gap and time.perf_counter() >= until:
            answer = replace(answer, notes=(OUT_OF_TIME,))
        return in_units(answer, problem, unit)

    def _searched(self, problem: Problem, prices: Prices, before: Allotment, limit_s: float) -> Allotment:
        """As good or better: what HiGHS finds among the candidates of choices that are better by more than the gap."""
        enough = before.value + 0.99 * self.gap * abs(before.value)
        open_ = open_at(problem, prices.each, prices.bound, enough)
        found, bound = improved(problem, open_, before.choice, self.gap, limit_s)
        answer = before
        if problem.fits(found) and problem.total(found) > before.value:
            answer = replace(before, choice=found, value=problem.total(found))
        assert before.bound is not None  # that of the prices at least
        return replace(answer, bound=min(before.bound, max(bound, enough, answer.value)))
