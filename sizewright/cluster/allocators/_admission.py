"""Admission: smallest candidates of the jobs that end soonest; more goes where it saves most completion time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import valued
from sizewright.cluster.allocators._queue import serve_in_order
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState
from sizewright.cluster.problem.utilities import completion_saved


def admit_shortest_first(problem: Problem, scheduler_state: SchedulerState) -> Problem:
    """Return the problem in which only admitted jobs are offered anything.

    Jobs are admitted while their smallest candidates fit, the soonest to end first. The values are the seconds by which
    each candidate ends earlier than the smallest.
    """
    seconds_left = scheduler_state.seconds_left()[np.arange(len(problem.current)), problem.smallest]
    base = serve_in_order(problem, np.argsort(seconds_left, kind="stable"), problem.smallest, strict=False)
    offered = problem.offered & (base > 0)[:, None]
    offered[:, 0] = base == 0
    problem = valued(problem, completion_saved(scheduler_state, problem.smallest))
    return replace(problem, offered=offered, fallback=base)
