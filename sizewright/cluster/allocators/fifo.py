"""First come, first served, the default of most clusters."""

from __future__ import annotations

from sizewright.cluster.allocators._base import Allocator, by_arrival
from sizewright.cluster.allocators._queue import requested_columns, serve_in_order
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution, chosen


class Fifo(Allocator):
    """Gives each job its request, of any kind, in order of arrival; the first that does not fit blocks the rest."""

    name = "fifo"
    rigid = True
    in_order = True

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        choice = serve_in_order(problem, by_arrival(problem), requested_columns(problem), strict=True)
        return chosen(problem, self.name, choice)
