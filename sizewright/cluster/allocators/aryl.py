"""Aryl's two phases: base demand shortest first, then a knapsack over what more each job may have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator, facts_of, valued
from sizewright.cluster.allocators._queue import served
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.allotment import Allotment
from sizewright.cluster.problem import Problem
from sizewright.cluster.values import completion_saved


class Aryl(Allocator):
    """Least candidates of all jobs, the soonest done first; what is left goes where it saves most completion time."""

    name = "aryl"
    origin = "arXiv 2202.07896; Lyra, EuroSys 2023"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        facts, rows = facts_of(problem, self.name), np.arange(len(problem.current))
        left = facts.seconds_left()[rows, problem.least]
        base = served(problem, np.argsort(left, kind="stable"), problem.least, strict=False)
        offered = problem.offered & (base > 0)[:, None]
        offered[:, 0] = base == 0
        admitted = replace(valued(problem, completion_saved(facts, problem.least)), offered=offered)
        return replace(Mip().choose(admitted, until), policy=self.name)
