"""Aryl (arXiv 2202.07896; Lyra, EuroSys 2023): base demand shortest first, then a knapsack over further demand."""

from __future__ import annotations

from dataclasses import replace

from sizewright.cluster.allocators._admission import admit_shortest_first
from sizewright.cluster.allocators._base import Allocator, scheduler_state_of
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution


class Aryl(Allocator):
    """Admits the smallest candidates, the soonest to end first; the rest goes where it saves most completion time."""

    name = "aryl"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        scheduler_state_of(problem, self.name)
        return replace(Mip().choose(admit_shortest_first(problem), until), policy=self.name)
