"""Slope greedy, as Optimus allocates workers and parameter servers (Peng et al., EuroSys 2018)."""

from __future__ import annotations

from sizewright.cluster.allocators._admission import admit_shortest_first
from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._greedy_upgrades import apply_steps, frontier, ranked_steps
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution, chosen


class SlopeGreedy(Allocator):
    """Upgrades jobs candidate by candidate, the greatest gain per dominant share first.

    With a scheduler state the gain is completion time saved, and each job gets its smallest candidate first, in order
    of the time that it needs (Optimus does not specify the order). A candidate that gains little hides a larger one
    that gains much.
    """

    name = "slope"
    by_value = True

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        if problem.scheduler_state is not None:
            problem = admit_shortest_first(problem, problem.scheduler_state)
        upgrades = frontier(problem, problem.share)
        steps = ranked_steps(problem, upgrades, problem.share)
        return chosen(problem, self.name, apply_steps(problem, upgrades, *steps))
