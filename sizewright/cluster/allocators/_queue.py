"""Serve jobs one after the other: each gets its column if that still fits."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.problem import ROUNDING, Ints, Problem


def requested_columns(problem: Problem) -> Ints:
    """Return the column (J,) that each user requested if it is offered, else the job's smallest candidate."""
    if problem.scheduler_state is None:
        return problem.smallest
    requested = problem.scheduler_state.requested
    offered = (requested > 0) & problem.offered[np.arange(len(requested)), requested]
    return np.where(offered, requested, problem.smallest)


def serve_in_order(problem: Problem, order: Ints, columns: Ints, *, strict: bool) -> Ints:
    """Return a choice (J,): the column in `columns` (J,) for each job in `order` if it fits, else the job's floor.

    The floors of all jobs are reserved first. With `strict`, the first job that does not fit ends the queue.
    """
    queue = order[(columns[order] != problem.floor[order]) & problem.offered[order, columns[order]]]
    return grow_in_order(problem, problem.floor, queue, columns, strict=strict)


def grow_in_order(problem: Problem, choice: Ints, queue: Ints, columns: Ints, *, strict: bool = False) -> Ints:
    """Return `choice` (J,) with the column in `columns` (J,) for each job of `queue`, in order, that still fits.

    With `strict`, the first job that does not fit ends the queue.
    """
    choice = choice.copy()
    slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
    rows = np.arange(len(choice))
    more = problem.needs[rows, columns] - problem.needs[rows, choice]
    while len(queue):
        exceeds = (np.cumsum(more[queue], axis=0) > slack).any(axis=1)
        count = int(exceeds.argmax()) if exceeds.any() else len(queue)
        choice[queue[:count]] = columns[queue[:count]]
        slack = slack - more[queue[:count]].sum(axis=0)
        if strict and count < len(queue):
            break
        queue = queue[count:]
        queue = queue[(more[queue] <= slack).all(axis=1)]
    return choice
