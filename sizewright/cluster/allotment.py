"""What an allocator answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.cluster.problem import Floats, Ints, Problem

OUT_OF_TIME = "the time limit ended the search: a longer one may bring more"
"""A note."""


@dataclass(frozen=True)
class Allotment:
    """One column for each job, within the capacity; how good it is, and how good any could be."""

    policy: str
    choice: Ints
    """(J,): columns of the problem; 0 is nothing."""
    value: float
    """Worth of the choice, as the policy counts it."""
    worth: Floats
    """(J, K): how the policy counts it, for each column; −inf where nothing is offered."""
    bound: float | None = None
    """No choice within the capacity is worth more; absent where the policy proves nothing."""
    prices: Floats | None = None
    """(R,): what another unit of each resource would be worth."""
    released: tuple[int, ...] = ()
    """Jobs that may not be put off and yet were, since all of them together do not fit."""
    spare: frozenset[int] = frozenset()
    """Jobs for whose next candidate (`ahead`) there would be room, on the servers too."""
    seconds: float = 0.0
    """That the decision took."""
    notes: tuple[str, ...] = ()

    def total(self, choice: Ints) -> float:
        """What another choice of columns (J,) would be worth to the policy."""
        return float(self.worth[np.arange(len(choice)), choice].sum())

    def ahead(self, problem: Problem, job: int) -> int:
        """A job's least candidate of more worth than what it gets, by dominant share; 0 where there is none."""
        worth, column = self.worth[job], int(self.choice[job])
        more = problem.offered[job] & (worth > worth[column] + 1e-12 * abs(worth[column]))
        more[0] = False
        return int(np.where(more, problem.share[job], np.inf).argmin()) if more.any() else 0

    @property
    def gap(self) -> float | None:
        """Share of the value by which a better choice could exceed it at most."""
        if self.bound is None:
            return None
        missing = max(self.bound - self.value, 0.0)
        return missing / abs(self.value) if self.value else (0.0 if missing <= 0 else float("inf"))


def chosen(problem: Problem, policy: str, choice: NDArray[np.integer], **proof: object) -> Allotment:
    """The allotment of a `choice` of columns (J,), with its worth in the problem's values; `proof` is what else is
    known of it, such as a `bound`."""
    columns = np.asarray(choice, dtype=np.intp)
    return Allotment(policy, columns, problem.total(columns), problem.worth, **proof)  # type: ignore[arg-type]
