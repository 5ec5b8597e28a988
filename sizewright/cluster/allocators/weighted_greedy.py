"""DLRover-RM's weighted greedy over the Pareto candidates of all jobs (arXiv 2304.01468)."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, scheduler_state_of, valued
from sizewright.cluster.allocators._greedy import greedy
from sizewright.cluster.allocators._settle import best_settled
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution, chosen
from sizewright.cluster.problem.utilities import trained_s


class WeightedGreedy(Allocator):
    """Upgrades by gain of throughput over cost, net of the cost of a change; jobs that are nearly done count more.

    Each job goes to the candidate of the greatest gain over cost. The weight is 1 over the seconds that the job would
    still take with its smallest candidate. The paper does not specify its weight: a reconstruction.
    """

    name = "weighted-greedy"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        weighted, choice = best_settled(problem, self._weighted, lambda each: greedy(each, until, steepest=True))
        return chosen(weighted, self.name, choice)

    def _weighted(self, problem: Problem) -> Problem:
        """Return the problem whose values are weighted speeds relative to the smallest candidate, net of restarts."""
        scheduler_state = scheduler_state_of(problem, self.name)
        speed = scheduler_state.speed
        smallest = np.maximum(speed[np.arange(len(speed)), problem.smallest], 1e-300)
        seconds_left = np.maximum(scheduler_state.remaining / smallest, 1.0)
        training_share = trained_s(scheduler_state, problem.current) / max(scheduler_state.window_s, 1e-300)
        return valued(problem, speed * training_share / (smallest * seconds_left)[:, None])
