"""Slope greedy, as Optimus allots workers and parameter servers (Peng et al., EuroSys 2018)."""

from __future__ import annotations

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._ladder import climb, frontier, steps_by
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Problem


class SlopeGreedy(Allocator):
    """Each job climbs candidate by candidate; the next step is that of the greatest gain a dominant share.

    It does not see past a candidate that gains little to one behind it that gains much.
    """

    name = "slope"
    origin = "Optimus, EuroSys 2018"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        ladder = frontier(problem, problem.share)
        return chosen(problem, self.name, climb(problem, ladder, *steps_by(problem, ladder, problem.share)))
