"""Upgrades from smaller to larger candidates of each job, taken in one order of all jobs until the capacity ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints, Problem

_NO_GROWTH = 1e-12
"""Size that is counted for a step to a better candidate that takes no more than the one before: it comes first."""


@dataclass(frozen=True)
class GreedyUpgrades:
    """The columns of each job in the order in which it is upgraded; it starts at level 0."""

    columns: Ints
    """(J, L)."""
    heights: Ints
    """(J,): the number of levels of each job; columns beyond are padding."""


def hull(problem: Problem, size: Floats, start: Ints | None = None) -> GreedyUpgrades:
    """Return the concave hull of each job's utility over `size` (J, K), from its floor or `start` (J,) upwards.

    Each step gains less per unit of size than the step before.
    """
    return _steepest(problem.utilities, size, problem.floor if start is None else start)


def frontier(problem: Problem, size: Floats) -> GreedyUpgrades:
    """Return each job's Pareto frontier: candidates with a higher utility than all smaller ones, by `size` (J, K).

    It starts at the floor. It is made for candidates of one kind, of which each is a step to the next larger one.
    """
    return _next_larger(problem.utilities, size, problem.floor)


def climb(problem: Problem, size: Floats, start: Ints, *, steepest: bool = True) -> Ints:
    """Return `start` (J,) after upgrades, the greatest gain per `size` (J, K) first, until no better candidate fits.

    If `steepest`, a job goes straight to the candidate of its greatest gain per size, else to the next larger one of
    some kind.

    Each round offers the candidates that fit on their own into what is left, so that a kind of resource that is used
    up, or a step that is too large, hides no other candidate.
    """
    choice: Ints = start.copy()
    kinds = problem.kinds if not steepest and problem.has_several_kinds.any() else None
    jobs = np.arange(len(choice))
    has_freed = False
    while True:
        slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
        now, utilities, needs = choice[jobs], problem.utilities, problem.needs
        if len(jobs) < len(choice):
            utilities, needs = utilities[jobs], needs[jobs]
        rows = np.arange(len(jobs))
        fits = utilities > utilities[rows, now][:, None]
        for r, left in enumerate(slack):  # a loop: numpy is slow to reduce a short last axis
            fits &= needs[:, :, r] <= needs[rows, now, r][:, None] + left
        can = fits.any(axis=1)
        if not can.any():
            if not has_freed:
                return choice
            jobs, has_freed = np.arange(len(choice)), False  # what one job gave back may serve another
            continue
        fits[rows, now] = True
        jobs, now, needs, sizes = jobs[can], now[can], needs[can], size[jobs[can]]
        utilities = np.where(fits, utilities, -np.inf)[can]
        if steepest:
            upgrades = _steepest(utilities, sizes, now)
        else:
            upgrades = _next_larger(utilities, sizes, now, None if kinds is None else kinds[jobs])
        after = _apply(needs, slack, upgrades, *_ranked(utilities, sizes, upgrades))
        rows = np.arange(len(jobs))
        has_freed |= bool((needs[rows, after] < needs[rows, now]).any())
        choice[jobs] = after


def _steepest(utilities: Floats, size: Floats, start: Ints) -> GreedyUpgrades:
    return _upgrades(utilities, size, start, lambda gain, growth: _slope(gain, growth, gain > 0))


def _next_larger(utilities: Floats, size: Floats, start: Ints, kinds: Ints | None = None) -> GreedyUpgrades:
    """Return steps to the next larger candidate that is better, of all kinds (J, K) to that of the greatest gain."""
    masks = [] if kinds is None else [kinds == kind for kind in np.unique(kinds)]

    def best(gain: Floats, growth: Floats) -> Floats:
        growth = np.where(gain > 0, growth, np.inf)
        if not masks:
            return -growth
        is_next = np.zeros(growth.shape, dtype=bool)
        for of_kind in masks:
            grown = np.where(of_kind, growth, np.inf)
            is_next |= grown == grown.min(axis=1, keepdims=True)
        return _slope(gain, growth, is_next & (gain > 0))

    return _upgrades(utilities, size, start, best)


def _slope(gain: Floats, growth: Floats, counts: Bools) -> Floats:
    """Return gain per growth (J, K) where it `counts` (J, K), else −inf."""
    return np.asarray(np.divide(gain, growth, out=np.full(gain.shape, -np.inf), where=counts))


def _upgrades(
    utilities: Floats, size: Floats, start: Ints, score_of: Callable[[Floats, Floats], Floats]
) -> GreedyUpgrades:
    """Return the upgrades of the greatest `score_of` gain and growth (J, K), step by step; −inf is no upgrade."""
    J, K = utilities.shape
    rows = np.arange(J)
    current = start.copy()
    columns = [current.copy()]
    heights = np.ones(J, dtype=np.intp)
    for _ in range(K - 1):
        gain = utilities - utilities[rows, current][:, None]
        growth = np.maximum(size - size[rows, current][:, None], _NO_GROWTH)
        score = score_of(gain, growth)
        best = score.argmax(axis=1)
        upgrades = np.isfinite(score[rows, best])
        if not upgrades.any():
            break
        current = np.where(upgrades, best, current)
        columns.append(current.copy())
        heights += upgrades
    return GreedyUpgrades(np.stack(columns, axis=1), heights)


def ranked_steps(problem: Problem, upgrades: GreedyUpgrades, size: Floats) -> tuple[Ints, Ints]:
    """Return the jobs (S,) and levels (S,) of all steps, the greatest gain per `size` (J, K) first.

    No step comes before the lower steps of its job.
    """
    return _ranked(problem.utilities, size, upgrades)


def _ranked(utilities: Floats, size: Floats, upgrades: GreedyUpgrades) -> tuple[Ints, Ints]:
    rows = np.arange(len(upgrades.columns))[:, None]
    levels = np.arange(1, upgrades.columns.shape[1])
    is_step = levels < upgrades.heights[:, None]
    gain = np.diff(utilities[rows, upgrades.columns], axis=1)
    slope = gain / np.maximum(np.diff(size[rows, upgrades.columns], axis=1), _NO_GROWTH)
    priority = np.minimum.accumulate(np.where(is_step, slope, -np.inf), axis=1)
    jobs, steps = np.nonzero(is_step)
    order = np.argsort(-priority[jobs, steps], kind="stable")
    return jobs[order], steps[order] + 1


def apply_steps(problem: Problem, upgrades: GreedyUpgrades, jobs: Ints, levels: Ints) -> Ints:
    """Return the columns (J,) after the steps of `jobs` (S,) to `levels` (S,), in this order, within the capacity.

    A step that does not fit ends the upgrades of its job; other jobs continue.
    """
    slack = problem.capacity * (1 + ROUNDING) - problem.used(upgrades.columns[:, 0])
    return _apply(problem.needs, slack, upgrades, jobs, levels)


def _apply(needs: Floats, slack: Floats, upgrades: GreedyUpgrades, jobs: Ints, levels: Ints) -> Ints:
    choice: Ints = upgrades.columns[:, 0].copy()
    before, after = upgrades.columns[jobs, levels - 1], upgrades.columns[jobs, levels]
    more = needs[jobs, after] - needs[jobs, before]
    while len(jobs):
        exceeds = (np.cumsum(more, axis=0) > slack).any(axis=1)
        count = int(exceeds.argmax()) if exceeds.any() else len(jobs)
        choice[jobs[:count]] = after[:count]  # of several steps of a job numpy keeps the last
        slack = slack - more[:count].sum(axis=0)
        jobs = jobs[count:]
        after = after[count:]
        more = more[count:]
        # a job continues up to its first step that is too large for the remaining capacity
        too_large = (more > slack).any(axis=1)
        first_too_large = np.full(len(choice), len(jobs))
        np.minimum.at(first_too_large, jobs[too_large], np.flatnonzero(too_large))
        continues = np.arange(len(jobs)) < first_too_large[jobs]
        jobs = jobs[continues]
        after = after[continues]
        more = more[continues]
    return choice
