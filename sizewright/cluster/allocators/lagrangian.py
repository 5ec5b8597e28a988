"""Lagrangian prices (Geoffrion 1974) with repair: near-optimal for many jobs and resources, with a proven gap."""

from __future__ import annotations

from sizewright.cluster.allocators._base import Allocator, denormalise, normalise
from sizewright.cluster.allocators._dual import DualPrices, solve_dual
from sizewright.cluster.allocators._local_search import local_search
from sizewright.cluster.allocators._repair import repair
from sizewright.cluster.allocators._settle import best_settled
from sizewright.cluster.problem.problem import Ints, Problem
from sizewright.cluster.problem.solution import Solution, chosen


class Lagrangian(Allocator):
    """Finds prices at which the jobs would take about the capacity, and repairs what they take so that it fits.

    The lowest bound over all prices is that of the linear relaxation, which splits at most as many jobs as there are
    resources: the gap falls as the number of jobs grows. With a price of changes, it searches again from its choice.
    """

    name = "lagrangian"
    by_value = True

    def __init__(self, gap: float = 1e-3) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        scaled, unit = normalise(problem)
        dual = solve_dual(scaled, until)
        if scaled.change_price.any():
            choice = best_settled(scaled, lambda each: each, lambda each: self._search(each, until, dual, scaled))[1]
        else:
            choice = self._search(scaled, until, dual, scaled)
        answer = chosen(scaled, self.name, choice, bound=dual.bound, prices=dual.prices)
        return denormalise(answer, problem, unit)

    def _search(self, problem: Problem, until: float, dual: DualPrices, solved: Problem) -> Ints:
        """Return the choice by prices; those of the `solved` problem are known."""
        if problem is not solved:
            dual = solve_dual(problem, until)
        choice = repair(problem, dual.prices, dual.choice)
        return local_search(problem, dual, choice, self.gap, until)
