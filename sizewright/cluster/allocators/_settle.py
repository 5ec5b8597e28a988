"""Decisions that are not undone: asked again with what it gave, and nothing else changed, a policy changes nothing.

What a job has is worth the restart of a change, so that a choice is worth more once the jobs have it. A greedy policy
may then find another one. It is asked again until it stays; with a cost of change, each time the total utility rises,
so this ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sizewright.cluster.allocators._greedy_upgrades import climb
from sizewright.cluster.problem.problem import Floats, Ints, Problem

MAX_ROUNDS = 12


def settled(problem: Problem, decide: Callable[[Problem], Ints]) -> Ints:
    """Return the choice (J,) of `decide` that it repeats when the jobs have it."""
    choice = decide(problem)
    for _ in range(MAX_ROUNDS):
        again = decide(problem.once_chosen(choice))
        if np.array_equal(again, choice):
            break
        choice = again
    return choice


def kept_or_better(problem: Problem, choice: Ints, *, weight: Floats | None = None, min_gain: float = 0.0) -> Ints:
    """Return a choice (J,), or what the jobs have with upgrades, unless `choice` is worth more by `min_gain`.

    `weight` (J,) multiplies the utilities of each job.
    """
    rows = np.arange(len(choice))
    kept = np.where(problem.offered[rows, problem.current], problem.current, problem.floor)
    if not kept.any() or np.array_equal(kept, choice) or not problem.fits(kept):
        return choice
    kept = climb(problem, problem.share, kept, weight=weight)
    gain = problem.utilities[rows, choice] - problem.utilities[rows, kept]
    total = float((gain if weight is None else weight * gain).sum())
    return choice if total > min_gain else kept
