"""Slope greedy, as Optimus allots workers and parameter servers (Peng et al., EuroSys 2018)."""

from __future__ import annotations

from sizewright.cluster.allocators._admitted import shortest_admitted
from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._ladder import climb, frontier, steps_by
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Problem


class SlopeGreedy(Allocator):
    """Each job climbs candidate by candidate; the next step is that of the greatest gain a dominant share.

    With facts of the jobs the gain is completion time, and each has its least candidate first, the soonest done before
    the others (Optimus does not tell the order). It does not see past a candidate that gains little to one behind it
    that gains much.
    """

    name = "slope"
    origin = "Optimus, EuroSys 2018"
    by_value = True

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        if problem.facts is not None:
            problem = shortest_admitted(problem, problem.facts)
        ladder = frontier(problem, problem.share)
        return chosen(problem, self.name, climb(problem, ladder, *steps_by(problem, ladder, problem.share)))
