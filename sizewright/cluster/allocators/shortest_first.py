"""Shortest job first: the least mean wait where sizes are fixed and durations known."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, facts_of
from sizewright.cluster.allocators._queue import served
from sizewright.cluster.allocators._wanted import wanted_of
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Problem


class ShortestFirst(Allocator):
    """Each job gets what its user asked for, the soonest done first; jobs that do not fit let others pass."""

    name = "sjf"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        wanted = wanted_of(problem)
        left = facts_of(problem, self.name).seconds_left()[np.arange(len(wanted)), wanted]
        choice = served(problem, np.argsort(left, kind="stable"), wanted, strict=False)
        return chosen(problem, self.name, choice)
