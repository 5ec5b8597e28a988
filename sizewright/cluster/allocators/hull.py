"""Concave-hull greedy (Sinha and Zoltners 1979): with one resource, at most one step from the optimum."""

from __future__ import annotations

from sizewright.cluster.allocators._admission import admit_shortest_first
from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._greedy_upgrades import apply_steps, hull, ranked_steps
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution, chosen


class HullGreedy(Allocator):
    """Takes steps along the concave hull of each job's table, the greatest gain per dominant share first.

    With a scheduler state it has the utilities and the start of slope greedy.
    """

    name = "hull"
    by_value = True

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        if problem.scheduler_state is not None:
            problem = admit_shortest_first(problem, problem.scheduler_state)
        upgrades = hull(problem, problem.share)
        steps = ranked_steps(problem, upgrades, problem.share)
        return chosen(problem, self.name, apply_steps(problem, upgrades, *steps))
