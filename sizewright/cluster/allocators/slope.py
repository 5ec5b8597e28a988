"""Slope greedy, as Optimus allocates workers and parameter servers (Peng et al., EuroSys 2018)."""

from __future__ import annotations

from typing import ClassVar

from sizewright.cluster.allocators._admission import admit_shortest_first
from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._greedy_upgrades import climb
from sizewright.cluster.allocators._settle import kept_or_better, settled
from sizewright.cluster.problem.problem import Ints, Problem
from sizewright.cluster.problem.solution import Solution, chosen


class SlopeGreedy(Allocator):
    """Upgrades jobs candidate by candidate, the greatest gain per dominant share first.

    With a scheduler state the gain is completion time saved, and each job gets its smallest candidate first, in order
    of the time that it needs (Optimus does not specify the order). A candidate that gains little hides a larger one
    of its kind that gains much.
    """

    name = "slope"
    by_value = True
    steepest: ClassVar[bool] = False

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        choice = settled(problem, self._decide)
        return chosen(admit_shortest_first(problem), self.name, choice)

    def _decide(self, problem: Problem) -> Ints:
        problem = admit_shortest_first(problem)
        return kept_or_better(problem, climb(problem, problem.share, problem.floor, steepest=self.steepest))
