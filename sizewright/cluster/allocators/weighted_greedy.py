"""DLRover-RM's weighted greedy over the Pareto candidates of all jobs (arXiv 2304.01468)."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, scheduler_state_of, valued
from sizewright.cluster.allocators._greedy_upgrades import climb
from sizewright.cluster.allocators._settle import kept_or_better, settled
from sizewright.cluster.problem.problem import Floats, Ints, Problem
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
        choice = settled(problem, self._decide)
        return chosen(self._by_net_speed(problem), self.name, choice)

    def _decide(self, problem: Problem) -> Ints:
        problem = self._by_net_speed(problem)
        scheduler_state = scheduler_state_of(problem, self.name)
        weight = 1.0 / np.maximum(scheduler_state.remaining / self._base_speed(problem), 1e-300)
        choice = climb(problem, problem.share, problem.floor, weight=weight)
        return kept_or_better(problem, choice, weight=weight)

    def _by_net_speed(self, problem: Problem) -> Problem:
        """Return the problem whose values are speeds relative to the smallest candidate, net of restarts."""
        scheduler_state = scheduler_state_of(problem, self.name)
        training_share = trained_s(scheduler_state, problem.current) / max(scheduler_state.window_s, 1e-300)
        return valued(problem, scheduler_state.speed * training_share / self._base_speed(problem)[:, None])

    def _base_speed(self, problem: Problem) -> Floats:
        speed = scheduler_state_of(problem, self.name).speed
        return np.maximum(speed[np.arange(len(speed)), problem.smallest], 1e-300)
