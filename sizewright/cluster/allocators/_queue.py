"""Serve jobs one after the other: each gets the first of its options that still fits."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints, Problem


def requested_columns(problem: Problem) -> Ints:
    """Return the column (J,) that each user requested if it is offered, else the job's smallest candidate."""
    if problem.scheduler_state is None:
        return problem.smallest
    requested = problem.scheduler_state.requested
    offered = (requested > 0) & problem.offered[np.arange(len(requested)), requested]
    return np.where(offered, requested, problem.smallest)


def options_of(problem: Problem, columns: Ints) -> Ints:
    """Return what serves a job as well as its column in `columns` (J,): an array (J, O), −1 for no more options.

    That is the column itself, and for each other kind of resource the candidate of the same size, or else the largest
    smaller or the smallest one. The kind that a job has now comes first, then the column, then the fastest.
    """
    rows = np.arange(len(columns))
    if not problem.has_several_kinds.any():
        return columns[:, None]
    kinds, units = problem.kinds, problem.units
    wanted = units[rows, columns][:, None]
    is_candidate = problem.offered & (np.arange(problem.shape[1]) > 0) & (columns > 0)[:, None]
    distance = np.where(units <= wanted * (1 + ROUNDING), wanted - units, wanted + units)
    options = [columns]
    for kind in np.unique(kinds[is_candidate]):
        distances = np.where(is_candidate & (kinds == kind), distance, np.inf)
        nearest = distances.argmin(axis=1)
        is_other = np.isfinite(distances[rows, nearest]) & (kinds[rows, columns] != kind)
        options.append(np.where(is_other, nearest, -1))
    found = np.stack(options, axis=1)
    return _ordered(problem, found, np.arange(found.shape[1]) > 0)


def smallest_options(problem: Problem) -> Ints:
    """Return the candidates of each job, the smallest dominant share first: (J, O), −1 for no more options.

    With one resource that is the smallest candidate alone. The kind that a job has now comes first.
    """
    if problem.shape[2] == 1:
        return problem.smallest[:, None]
    columns = np.broadcast_to(np.arange(problem.shape[1]), problem.offered.shape)
    found = np.where(problem.offered & (columns > 0), columns, -1)
    return _ordered(problem, found, problem.share)


def _ordered(problem: Problem, options: Ints, size: Floats | Bools) -> Ints:
    """Return the options (J, O) in order: of the kind that the job has now, by `size` (J, O), then the fastest."""
    rows = np.arange(len(options))[:, None]
    speed = problem.values if problem.scheduler_state is None else problem.scheduler_state.speed
    current_kind = problem.kinds[rows, problem.current[:, None]]
    moves = (problem.current[:, None] > 0) & (problem.kinds[rows, options] != current_kind)
    size = np.broadcast_to(size, options.shape)
    order = np.lexsort((-speed[rows, options], size, moves, options < 0), axis=1)
    return np.asarray(np.take_along_axis(options, order, axis=1))


def serve_in_order(problem: Problem, order: Ints, columns: Ints, *, strict: bool) -> Ints:
    """Return a choice (J,): for each job in `order` the first of its options that fits, else the job's floor.

    `columns` are options (J, O), or one column for each job (J,) instead of which a candidate of the same size of
    another kind will do (see `options_of`). The floors of all jobs are reserved first. With `strict`, the first job
    that does not fit ends the queue.
    """
    options = options_of(problem, columns) if columns.ndim == 1 else columns
    rows = np.arange(len(options))
    has_any = (options[:, 0] > 0) & (options[:, 0] != problem.floor) & problem.offered[rows, options[:, 0]]
    return grow_in_order(problem, problem.floor, order[has_any[order]], options, strict=strict)


def grow_in_order(problem: Problem, choice: Ints, queue: Ints, options: Ints, *, strict: bool = False) -> Ints:
    """Return `choice` (J,) with the first of the `options` (J, O) that still fits for each job of `queue`, in order.

    With `strict`, the first job for which none fits ends the queue.
    """
    choice = choice.copy()
    slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
    wanted = options[queue]
    more = problem.needs[queue[:, None], wanted] - problem.needs[queue, choice[queue]][:, None]
    while len(queue):
        fits = (more <= slack).all(axis=2) & (wanted > 0)
        can = fits.any(axis=1)
        if strict and not can.all():
            end = int(can.argmin())
            can[end:] = False
        queue, wanted, more, first = queue[can], wanted[can], more[can], fits[can].argmax(axis=1)
        rows = np.arange(len(queue))
        taken = more[rows, first]
        exceeds = (np.cumsum(taken, axis=0) > slack).any(axis=1)
        count = int(exceeds.argmax()) if exceeds.any() else len(queue)
        choice[queue[:count]] = wanted[rows[:count], first[:count]]
        slack = slack - taken[:count].sum(axis=0)
        queue, wanted, more = queue[count:], wanted[count:], more[count:]
    return choice
