"""Shortest remaining service first: the remaining time times the size, as Tiresias (NSDI 2019) calls it."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, scheduler_state_of
from sizewright.cluster.allocators._queue import requested_columns, serve_in_order
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution, chosen


class ShortestService(Allocator):
    """Gives each job its request, the least remaining time × GPUs first; jobs that do not fit are skipped."""

    name = "srsf"
    rigid = True

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        requested, rows = requested_columns(problem), np.arange(len(problem.current))
        seconds_left = scheduler_state_of(problem, self.name).seconds_left()[rows, requested]
        service = seconds_left * np.maximum(problem.units[rows, requested], 1e-300)  # inf × 0 is no order
        choice = serve_in_order(problem, np.argsort(service, kind="stable"), requested, strict=False)
        return chosen(problem, self.name, choice)
