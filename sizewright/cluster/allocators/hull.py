"""Concave-hull greedy: for one resource short of the best by one step of one job at most."""

from __future__ import annotations

from sizewright.cluster.allocators._admitted import shortest_admitted
from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._ladder import climb, hull, steps_by
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Problem


class HullGreedy(Allocator):
    """Steps along the concave hull of each job's table, those of the greatest gain a dominant share first.

    With facts of the jobs it counts what slope greedy counts, from where that begins.
    """

    name = "hull"
    origin = "Sinha and Zoltners 1979"
    by_value = True

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        if problem.facts is not None:
            problem = shortest_admitted(problem, problem.facts)
        ladder = hull(problem, problem.share)
        return chosen(problem, self.name, climb(problem, ladder, *steps_by(problem, ladder, problem.share)))
