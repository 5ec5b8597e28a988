"""Upgrades from smaller to larger candidates of each job, taken in one order of all jobs until the capacity ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sizewright.cluster.problem.problem import ROUNDING, Floats, Ints, Problem


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
    return _upgrades(problem, size, problem.floor if start is None else start, steepest=True)


def frontier(problem: Problem, size: Floats) -> GreedyUpgrades:
    """Return each job's Pareto frontier: candidates with a higher utility than all smaller ones, by `size` (J, K).

    It starts at the floor.
    """
    return _upgrades(problem, size, problem.floor, steepest=False)


def _upgrades(problem: Problem, size: Floats, start: Ints, *, steepest: bool) -> GreedyUpgrades:
    J, K, _ = problem.shape
    rows = np.arange(J)
    current = start.copy()
    columns = [current.copy()]
    heights = np.ones(J, dtype=np.intp)
    for _ in range(K - 1):
        gain = problem.utilities - problem.utilities[rows, current][:, None]
        growth = size - size[rows, current][:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.where((gain > 0) & (growth > 0), gain / growth if steepest else -growth, -np.inf)
        best = score.argmax(axis=1)
        upgrades = np.isfinite(score[rows, best])
        if not upgrades.any():
            break
        current = np.where(upgrades, best, current)
        columns.append(current.copy())
        heights += upgrades
    return GreedyUpgrades(np.stack(columns, axis=1), heights)


def ranked_steps(
    problem: Problem, upgrades: GreedyUpgrades, size: Floats, weight: Floats | None = None
) -> tuple[Ints, Ints]:
    """Return the jobs (S,) and levels (S,) of all steps, the greatest gain per `size` (J, K) first.

    The gain of each job is multiplied by `weight` (J,). No step comes before the lower steps of its job.
    """
    rows = np.arange(len(upgrades.columns))[:, None]
    utilities, sizes = problem.utilities[rows, upgrades.columns], size[rows, upgrades.columns]
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.diff(utilities, axis=1) / np.diff(sizes, axis=1)
    if weight is not None:
        slope = slope * weight[:, None]
    is_step = np.arange(1, upgrades.columns.shape[1]) < upgrades.heights[:, None]
    priority = np.minimum.accumulate(np.where(is_step, slope, -np.inf), axis=1)
    jobs, steps = np.nonzero(is_step)
    order = np.argsort(-priority[jobs, steps], kind="stable")
    return jobs[order], steps[order] + 1


def apply_steps(problem: Problem, upgrades: GreedyUpgrades, jobs: Ints, levels: Ints) -> Ints:
    """Return the columns (J,) after the steps of `jobs` (S,) to `levels` (S,), in this order, within the capacity.

    A step that does not fit ends the upgrades of its job; other jobs continue.
    """
    choice: Ints = upgrades.columns[:, 0].copy()
    slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
    before, after = upgrades.columns[jobs, levels - 1], upgrades.columns[jobs, levels]
    more = problem.needs[jobs, after] - problem.needs[jobs, before]
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
