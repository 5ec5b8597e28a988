"""Jobs served one after the other: each gets the first of its columns that still fits."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem import ROUNDING, Ints, Problem


def served(problem: Problem, order: Ints, wanted: Ints, *, strict: bool) -> Ints:
    """(J,): the `wanted` column (J,) of each job in `order`, or its floor; `strict` ends at the first that must wait.

    Jobs that may not be put off hold their floor beforehand.
    """
    asks = order[(wanted[order] != problem.floor[order]) & problem.offered[order, wanted[order]]]
    return grown(problem, problem.floor, asks, wanted, strict=strict)


def grown(problem: Problem, choice: Ints, asks: Ints, wanted: Ints, *, strict: bool = False) -> Ints:
    """(J,): `choice`, with what is `wanted` (J,) for each job of `asks`, in their order, that fits beside the others.

    `strict` ends at the first that does not.
    """
    choice = choice.copy()
    slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
    rows = np.arange(len(choice))
    more = problem.needs[rows, wanted] - problem.needs[rows, choice]
    while len(asks):
        exceeds = (np.cumsum(more[asks], axis=0) > slack).any(axis=1)
        taken = int(exceeds.argmax()) if exceeds.any() else len(asks)
        choice[asks[:taken]] = wanted[asks[:taken]]
        slack = slack - more[asks[:taken]].sum(axis=0)
        if strict and taken < len(asks):
            break
        asks = asks[taken:]
        asks = asks[(more[asks] <= slack).all(axis=1)]
    return choice
