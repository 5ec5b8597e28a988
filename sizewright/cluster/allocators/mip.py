"""Mixed-integer programme, solved by HiGHS from a choice that fits."""

from __future__ import annotations

import time
from dataclasses import replace

from sizewright.cluster.allocators._base import Allocator, denormalise, normalise
from sizewright.cluster.allocators._dual import DualPrices, open_candidates, solve_dual
from sizewright.cluster.allocators._highs import solve_with_highs
from sizewright.cluster.allocators._local_search import local_search
from sizewright.cluster.allocators._repair import repair
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import OUT_OF_TIME, Solution, chosen

TIME_SHARES = (0.2, 1.0)
"""Share of the remaining time for each search: a better choice from the first leaves fewer candidates to the second."""


class Mip(Allocator):
    """Begins with prices and repair; if their gap exceeds `gap`, HiGHS searches for a better choice.

    HiGHS gets the candidates that the prices leave open to choices that are better by more than `gap`.
    """

    name = "mip"
    by_value = True

    def __init__(self, gap: float = 1e-3) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        scaled, unit = normalise(problem)
        dual = solve_dual(scaled, until)
        start = repair(scaled, dual.prices, dual.choice)
        start = local_search(scaled, dual, start, self.gap, until)
        answer = chosen(scaled, self.name, start, bound=dual.bound, prices=dual.prices)
        for share in TIME_SHARES:
            remaining_s = until - time.perf_counter()
            if (answer.gap or 0.0) <= self.gap or remaining_s <= 0:
                break
            answer = self._search(scaled, dual, answer, share * remaining_s)
        if (answer.gap or 0.0) > self.gap and time.perf_counter() >= until:
            answer = replace(answer, notes=(OUT_OF_TIME,))
        return denormalise(answer, problem, unit)

    def _search(self, problem: Problem, dual: DualPrices, before: Solution, limit_s: float) -> Solution:
        """Return a solution at least as good as `before`, with a bound at least as tight."""
        target = before.value + 0.99 * self.gap * abs(before.value)
        is_open = open_candidates(problem, dual.prices, dual.bound, target)
        choice, bound = solve_with_highs(problem, is_open, before.choice, self.gap, limit_s)
        answer = before
        if problem.fits(choice) and problem.total(choice) > before.value:
            answer = replace(before, choice=choice, value=problem.total(choice))
        assert before.bound is not None  # the dual has one
        return replace(answer, bound=min(before.bound, max(bound, target, answer.value)))
