"""Steps from small to large candidates, job by job, taken in an order of all jobs until the capacity ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sizewright.cluster.problem import ROUNDING, Bools, Floats, Ints, Problem


@dataclass(frozen=True)
class Ladder:
    """Columns of each job in the order in which it may climb; rung 0 is where it begins."""

    columns: Ints
    """(J, L)."""
    heights: Ints
    """(J,): rungs that count."""


def hull(problem: Problem, size: Floats, start: Ints | None = None) -> Ladder:
    """The concave hull of each job's table over `size` (J, K), from its floor or `start` upwards: each step gains less
    than the one before for what it takes."""
    return _walk(problem, size, problem.floor if start is None else start, steepest=True)


def frontier(problem: Problem, size: Floats) -> Ladder:
    """Every candidate that is worth more than all smaller ones, from the floor upwards; `size` (J, K) says which are
    smaller."""
    return _walk(problem, size, problem.floor, steepest=False)


def _walk(problem: Problem, size: Floats, start: Ints, *, steepest: bool) -> Ladder:
    J, K, _ = problem.shape
    rows, at = np.arange(J), start.copy()
    columns, heights = [at.copy()], np.ones(J, dtype=np.intp)
    for _ in range(K - 1):
        gain = problem.worth - problem.worth[rows, at][:, None]
        more = size - size[rows, at][:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            key = np.where((gain > 0) & (more > 0), gain / more if steepest else -more, -np.inf)
        ahead = key.argmax(axis=1)
        climbs = np.isfinite(key[rows, ahead])
        if not climbs.any():
            break
        at = np.where(climbs, ahead, at)
        columns.append(at.copy())
        heights += climbs
    return Ladder(np.stack(columns, axis=1), heights)


def steps_by(problem: Problem, ladder: Ladder, size: Floats, weight: Floats | None = None) -> tuple[Ints, Ints]:
    """Jobs and rungs of all steps, those of the greatest gain for their size first, none before the step below it."""
    rows = np.arange(len(ladder.columns))[:, None]
    worth, sizes = problem.worth[rows, ladder.columns], size[rows, ladder.columns]
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.diff(worth, axis=1) / np.diff(sizes, axis=1)
    if weight is not None:
        slope = slope * weight[:, None]
    real = np.arange(1, ladder.columns.shape[1]) < ladder.heights[:, None]
    order = np.minimum.accumulate(np.where(real, slope, -np.inf), axis=1)
    jobs, rungs = np.nonzero(real)
    first = np.argsort(-order[jobs, rungs], kind="stable")
    return jobs[first], rungs[first] + 1


def climb(problem: Problem, ladder: Ladder, jobs: Ints, rungs: Ints) -> Ints:
    """The columns (J,) after the steps to `rungs` (S,) of `jobs` (S,), in this order, as far as the capacity goes.

    A step that does not fit ends its job's climb; the others go on.
    """
    choice: Ints = ladder.columns[:, 0].copy()
    slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
    before, after = ladder.columns[jobs, rungs - 1], ladder.columns[jobs, rungs]
    more = problem.needs[jobs, after] - problem.needs[jobs, before]
    while len(jobs):
        exceeds = (np.cumsum(more, axis=0) > slack).any(axis=1)
        taken = int(exceeds.argmax()) if exceeds.any() else len(jobs)
        choice[jobs[:taken]] = after[:taken]  # of several steps of a job numpy keeps the last
        slack = slack - more[:taken].sum(axis=0)
        rest = _go_on(jobs[taken:], more[taken:], slack, len(choice))
        jobs, after, more = jobs[taken:][rest], after[taken:][rest], more[taken:][rest]
    return choice


def _go_on(jobs: Ints, more: Floats, slack: Floats, count: int) -> Bools:
    """(S,): whether neither the step nor an earlier one of its job is too large for what is left."""
    large = (more > slack).any(axis=1)
    first = np.full(count, len(jobs))
    np.minimum.at(first, jobs[large], np.nonzero(large)[0])
    return np.arange(len(jobs)) < first[jobs]
