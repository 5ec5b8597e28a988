"""Elastic-Tiresias (EDL, arXiv 1909.11985): two queues by attained service, compaction if many wait, then growth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator, by_arrival, scheduler_state_of, valued
from sizewright.cluster.allocators._greedy_upgrades import climb
from sizewright.cluster.allocators._queue import requested_columns, serve_in_order
from sizewright.cluster.allocators._settle import settled
from sizewright.cluster.problem.problem import Bools, Ints, Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState
from sizewright.cluster.problem.solution import Solution, chosen

COMPACTION = 10
"""Number of waiting jobs beyond which running jobs of the lower queue shrink to their smallest candidates."""
QUEUE_LIMIT = 3600.0
"""Attained service (GPU-seconds, or core-seconds without GPUs) at which the top queue ends: one hour; our choice."""


class ElasticTiresias(Allocator):
    """Serves jobs of little attained service first, then by first start; each gets its request if that fits."""

    name = "elastic-tiresias"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        return chosen(problem, self.name, settled(problem, self._decide))

    def _decide(self, problem: Problem) -> Ints:
        scheduler_state = scheduler_state_of(problem, self.name)
        in_top_queue = scheduler_state.attained < QUEUE_LIMIT
        requested = requested_columns(problem)
        order = _queue_order(problem, scheduler_state, in_top_queue)
        choice = serve_in_order(problem, order, requested, strict=False)
        if int(((choice == 0) & (problem.smallest > 0)).sum()) > COMPACTION:
            shrunk = np.where(in_top_queue, requested, problem.smallest)
            choice = serve_in_order(problem, order, shrunk, strict=False)
        return _grow(problem, scheduler_state, choice)


def _queue_order(problem: Problem, scheduler_state: SchedulerState, in_top_queue: Bools) -> Ints:
    started = np.where(np.isfinite(scheduler_state.started_s), scheduler_state.started_s, np.inf)
    arrival_rank = np.empty(len(started), dtype=np.intp)
    arrival_rank[by_arrival(problem)] = np.arange(len(started))
    return np.lexsort((arrival_rank, started, ~in_top_queue))


def _grow(problem: Problem, scheduler_state: SchedulerState, choice: Ints) -> Ints:
    """Return `choice` (J,) after upgrades with the remaining capacity, by gain of relative speed per dominant share."""
    rows = np.arange(len(choice))
    base_speed = np.maximum(scheduler_state.speed[rows, problem.smallest], 1e-300)
    offered = problem.offered & (problem.share >= problem.share[rows, choice][:, None])
    offered[rows, choice] = True
    offered[:, 0] = choice == 0
    values = scheduler_state.speed / base_speed[:, None]
    problem = valued(replace(problem, offered=offered, fallback=choice), values)
    return climb(problem, problem.share, choice, steepest=False)
