"""Jobs served one after the other: each gets the first of its columns that still fits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sizewright.cluster.problem import ROUNDING, Ints, Problem


def served(problem: Problem, order: Ints, wanted: Ints, *, strict: bool) -> Ints:
    """(J,): the `wanted` column (J,) of each job in `order`, or its floor; `strict` ends at the first that must wait.

    Jobs that may not be put off hold their floor beforehand.
    """
    choice = problem.floor.copy()
    slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
    rows = np.arange(len(choice))
    more = problem.needs[rows, wanted] - problem.needs[rows, choice]
    asks = order[(wanted[order] != choice[order]) & problem.offered[order, wanted[order]]]
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


def first_that_fits(problem: Problem, choice: Ints, job: int, columns: Iterable[int]) -> int:
    """The first of the columns that fits beside what the others have; what the job has where none does."""
    slack = problem.capacity * (1 + ROUNDING) - problem.used(choice) + problem.needs[job, choice[job]]
    return next((c for c in columns if problem.offered[job, c] and (problem.needs[job, c] <= slack).all()), choice[job])
