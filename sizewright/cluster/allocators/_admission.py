"""Admission: smallest candidates of the jobs that end soonest; more goes where it saves most completion time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import valued
from sizewright.cluster.allocators._queue import serve_in_order, smallest_options
from sizewright.cluster.problem.problem import Floats, Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState
from sizewright.cluster.problem.utilities import completion_saved

KEPT = 1.0
"""How much more the time counts that a job would lose by getting less than it has, relative to what it would gain.

The job with the most work left saves most time. Without this, two equal jobs would take turns at one larger size, which
saves nothing and costs two restarts each time. Our own rule."""


def admit_shortest_first(problem: Problem) -> Problem:
    """Return the problem in which admitted jobs keep something, and other jobs get what these leave.

    Without a scheduler state all jobs compete by their values.

    Jobs are admitted while one of their candidates fits, the smallest first, the soonest to end first. The values are
    the seconds by which each candidate ends earlier than the smallest, less the restart of a job that runs; a job that
    waits ends later by at least a window.
    """
    scheduler_state = problem.scheduler_state
    if scheduler_state is None:
        return problem
    rows = np.arange(len(problem.current))
    seconds_left = scheduler_state.seconds_left()[rows, problem.smallest]
    order = np.argsort(seconds_left, kind="stable")
    base = serve_in_order(problem, order, smallest_options(problem), strict=False)
    offered = problem.offered.copy()
    offered[:, 0] &= base == 0
    saved = _saved(problem, scheduler_state)
    saved[:, 0] = np.where(problem.offered, saved, np.inf)[:, 1:].min(axis=1, initial=0.0) - scheduler_state.window_s
    return replace(valued(problem, saved), offered=offered, fallback=base)


def _saved(problem: Problem, scheduler_state: SchedulerState) -> Floats:
    saved = completion_saved(scheduler_state, problem.smallest)
    has_now = saved[np.arange(len(saved)), problem.current][:, None]
    changed = (problem.current[:, None] > 0) & (np.arange(saved.shape[1]) != problem.current[:, None])
    lost = scheduler_state.restart_s[:, None] + KEPT * np.maximum(has_now - saved, 0.0)
    return saved - np.where(changed, lost, 0.0)
