"""First come, first served: what most clusters do."""

from __future__ import annotations

from sizewright.cluster.allocators._base import Allocator, by_arrival
from sizewright.cluster.allocators._queue import served
from sizewright.cluster.allocators._wanted import wanted_of
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Problem


class Fifo(Allocator):
    """Each job gets what its user asked for, in order of arrival; the first that does not fit holds up the rest."""

    name = "fifo"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        choice = served(problem, by_arrival(problem), wanted_of(problem), strict=True)
        return chosen(problem, self.name, choice)
