"""Aryl's two phases: base demand shortest first, then a knapsack over what more each job may have."""

from __future__ import annotations

from dataclasses import replace

from sizewright.cluster.allocators._admitted import shortest_admitted
from sizewright.cluster.allocators._base import Allocator, facts_of
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.allotment import Allotment
from sizewright.cluster.problem import Problem


class Aryl(Allocator):
    """Least candidates of all jobs, the soonest done first; what is left goes where it saves most completion time."""

    name = "aryl"
    origin = "arXiv 2202.07896; Lyra, EuroSys 2023"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        admitted = shortest_admitted(problem, facts_of(problem, self.name))
        return replace(Mip().choose(admitted, until), policy=self.name)
