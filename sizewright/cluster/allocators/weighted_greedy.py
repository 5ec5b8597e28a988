"""DLRover-RM's weighted greedy over the Pareto candidates of all jobs (arXiv 2304.01468)."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, scheduler_state_of, valued
from sizewright.cluster.allocators._greedy_upgrades import apply_steps, frontier, ranked_steps
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution, chosen
from sizewright.cluster.problem.utilities import trained_s


class WeightedGreedy(Allocator):
    """Upgrades by gain of throughput over cost, net of the cost of a change; jobs that are nearly done count more.

    Each job's candidates are its Pareto set of throughput and cost. The weight is 1 over the seconds that the job would
    still take with its smallest candidate. The paper does not specify its weight: a reconstruction.
    """

    name = "weighted-greedy"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        scheduler_state = scheduler_state_of(problem, self.name)
        rows = np.arange(len(problem.current))
        net_speed = (
            scheduler_state.speed * trained_s(scheduler_state, problem.current) / max(scheduler_state.window_s, 1e-300)
        )
        base_speed = np.maximum(scheduler_state.speed[rows, problem.smallest], 1e-300)
        problem = valued(problem, net_speed / base_speed[:, None])
        seconds_left = scheduler_state.remaining / base_speed
        upgrades = frontier(problem, problem.share)
        steps = ranked_steps(problem, upgrades, problem.share, 1.0 / np.maximum(seconds_left, 1e-300))
        return chosen(problem, self.name, apply_steps(problem, upgrades, *steps))
