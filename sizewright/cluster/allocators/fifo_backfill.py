"""First come, first served with EASY backfilling (Lifka 1995; Mu'alem and Feitelson, TPDS 2001)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sizewright.cluster.allocators._base import Allocator, by_arrival, scheduler_state_of
from sizewright.cluster.allocators._queue import grow_in_order, options_of, requested_columns
from sizewright.cluster.problem.problem import ROUNDING, Floats, Ints, Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState
from sizewright.cluster.problem.solution import Solution, chosen


class FifoBackfill(Allocator):
    """Gives each job its request in order of arrival; later jobs may pass the first that does not fit.

    That job has a reservation for the earliest time at which enough running jobs have ended, by their estimated
    durations. A later job starts now if it ends by then, or needs only what the reservation leaves. Running jobs keep
    what they have.
    """

    name = "fifo-backfill"
    rigid = True

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        seconds_left = _seconds_left(problem, scheduler_state_of(problem, self.name))
        rows, order = np.arange(len(problem.current)), by_arrival(problem)
        runs = (problem.current > 0) & problem.offered[rows, problem.current]
        choice = grow_in_order(problem, problem.floor, order[runs[order]], problem.current[:, None])
        options = options_of(problem, requested_columns(problem))
        waits = ~(runs & (choice == problem.current)) & (options[:, 0] > 0) & (options[:, 0] != choice)
        queue = order[waits[order]]
        while len(queue):
            before = choice[queue]
            choice = grow_in_order(problem, choice, queue, options, strict=True)
            queue = queue[choice[queue] == before]
            if len(queue) and (held := _reserve(problem, seconds_left, choice, int(queue[0]), options[queue[0]])):
                choice = _backfill(problem, seconds_left, choice, queue[1:], options, held)
                break
            queue = queue[1:]  # a job for which nothing will ever be free holds up no other
        return chosen(problem, self.name, choice)


class _Reservation(NamedTuple):
    after_s: float
    spare: Floats
    """(R,): what is free at that time besides what is reserved."""


def _seconds_left(problem: Problem, scheduler_state: SchedulerState) -> Floats:
    """Return the time (J, K) until each job would end with each candidate, its start or change included."""
    changes = np.arange(problem.shape[1]) != problem.current[:, None]
    return np.asarray(scheduler_state.seconds_left() + scheduler_state.restart_s[:, None] * changes)


def _reserve(problem: Problem, seconds_left: Floats, choice: Ints, job: int, options: Ints) -> _Reservation | None:
    """Return the earliest reservation for one of a job's `options` (O,); None if it never fits."""
    others = np.flatnonzero((choice > 0) & (np.arange(len(choice)) != job))
    ends_s = seconds_left[others, choice[others]]
    others, ends_s = others[np.isfinite(ends_s)], ends_s[np.isfinite(ends_s)]
    by_end = np.argsort(ends_s, kind="stable")
    others, ends_s = others[by_end], np.concatenate([[0.0], ends_s[by_end]])
    freed = np.cumsum(problem.needs[others, choice[others]], axis=0)
    slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
    free = slack + np.concatenate([np.zeros((1, len(slack))), freed])
    held: _Reservation | None = None
    for column in options[options > 0]:
        more = problem.needs[job, column] - problem.needs[job, choice[job]]
        enough = (more <= free).all(axis=1)
        if enough.any() and (held is None or ends_s[enough.argmax()] < held.after_s):
            after_s = float(ends_s[enough.argmax()])
            held = _Reservation(after_s, free[int(np.searchsorted(ends_s, after_s, side="right")) - 1] - more)
    return held


def _backfill(
    problem: Problem, seconds_left: Floats, choice: Ints, queue: Ints, options: Ints, held: _Reservation
) -> Ints:
    """Return `choice` (J,) with those jobs of `queue`, in order, that do not delay the reservation.

    What is spare at its time is a second set of resources, which only jobs use that have not ended by then.
    """
    rows = np.arange(len(choice))
    later = seconds_left > held.after_s
    later[rows, choice] = False  # what these have is not part of what is spare
    needs = np.concatenate([problem.needs, problem.needs * later[:, :, None]], axis=2)
    capacity = np.concatenate([problem.capacity, np.maximum(held.spare, 0.0)])
    with_spare = replace(problem, resources=[*problem.resources] * 2, needs=needs, capacity=capacity)
    return grow_in_order(with_spare, choice, queue, options)
