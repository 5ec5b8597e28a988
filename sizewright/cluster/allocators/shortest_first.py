"""Shortest job first: the shortest mean wait if sizes are fixed and durations are known."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, scheduler_state_of
from sizewright.cluster.allocators._queue import requested_columns, serve_in_order
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution, chosen


class ShortestFirst(Allocator):
    """Gives each job its request, of any kind, the soonest to end first; jobs that do not fit are skipped."""

    name = "sjf"
    rigid = True

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        requested = requested_columns(problem)
        seconds_left = scheduler_state_of(problem, self.name).seconds_left()[np.arange(len(requested)), requested]
        choice = serve_in_order(problem, np.argsort(seconds_left, kind="stable"), requested, strict=False)
        return chosen(problem, self.name, choice)
