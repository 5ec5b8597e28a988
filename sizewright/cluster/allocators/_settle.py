"""Decisions that are not undone: asked again with what it gave, and nothing else changed, a policy changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sizewright.cluster.allocators._greedy_upgrades import climb
from sizewright.cluster.problem.problem import Ints, Problem

MAX_ROUNDS = 12


def settled(problem: Problem, decide: Callable[[Problem], Ints]) -> Ints:
    """Return the choice (J,) of `decide` that it repeats when the jobs have it, after `MAX_ROUNDS` the last one."""
    choice = decide(problem)
    for _ in range(MAX_ROUNDS):
        again = decide(problem.replaced(current=choice))
        if np.array_equal(again, choice):
            break
        choice = again
    return choice


def best_settled(
    problem: Problem, valued: Callable[[Problem], Problem], decide: Callable[[Problem], Ints]
) -> tuple[Problem, Ints]:
    """Return the valued problem and a choice (J,) to which `decide` knows no better one once the jobs have it.

    `valued` sets the utilities, which depend on what the jobs have: a change costs a restart. A choice is therefore
    worth more once they have it, and a greedy one may then be followed by another. Each time the total utility rises,
    so this ends. What the jobs have at first, with upgrades, is the choice to beat.
    """
    first = valued(problem)
    choice = _better(first, decide(first), kept(first))
    for _ in range(MAX_ROUNDS):
        if np.array_equal(choice, problem.current):
            break
        problem = problem.replaced(current=choice)
        now = valued(problem)
        choice = _better(now, decide(now), choice)
    return first, choice


def kept(problem: Problem) -> Ints | None:
    """Return what the jobs have (J,), with upgrades by gain per dominant share, or None if that does not fit."""
    choice = np.where(problem.offered[np.arange(len(problem.current)), problem.current], problem.current, problem.floor)
    return climb(problem, problem.share, choice) if choice.any() and problem.fits(choice) else None


def _better(problem: Problem, choice: Ints, before: Ints | None) -> Ints:
    return choice if before is None or problem.total(choice) > problem.total(before) else before
