"""DLRover-RM's weighted greedy over the Pareto candidates of all jobs (arXiv 2304.01468)."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, facts_of, valued
from sizewright.cluster.allocators._ladder import climb, frontier, steps_by
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Problem
from sizewright.cluster.values import trained_s


class WeightedGreedy(Allocator):
    """Gain of throughput over gain of cost, net of what a change costs, weighted towards jobs that are nearly done.

    Each job's candidates are its Pareto set of throughput and cost; the weight is 1 over the seconds that it would
    still take with its least candidate. Which weight the paper takes is not told: a reconstruction.
    """

    name = "weighted-greedy"
    origin = "reconstruction of DLRover-RM, VLDB 2024"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        facts, rows = facts_of(problem, self.name), np.arange(len(problem.current))
        net = facts.speed * trained_s(facts, problem.current) / max(facts.window_s, 1e-300)
        speed = np.maximum(facts.speed[rows, problem.least], 1e-300)
        problem = valued(problem, net / speed[:, None])
        left = facts.remaining / speed
        ladder = frontier(problem, problem.share)
        steps = steps_by(problem, ladder, problem.share, 1.0 / np.maximum(left, 1e-300))
        return chosen(problem, self.name, climb(problem, ladder, *steps))
