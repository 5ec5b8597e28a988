"""The solution of an allocation problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.cluster.problem.problem import Floats, Ints, Problem

OUT_OF_TIME = "the search stopped at the time limit; a longer limit may give a better allocation"
"""The note of a solution whose search was cut off."""


@dataclass(frozen=True)
class Solution:
    """One column for each job within the capacity, its value, and a bound on the value of any choice."""

    policy: str
    choice: Ints
    """(J,): columns of the problem; 0 is nothing."""
    value: float
    """Total utility of the choice, as the policy defines utility."""
    utilities: Floats
    """(J, K): the policy's utility of each column; −inf for columns that are not offered."""
    bound: float | None = None
    """Upper bound on the value of any choice within the capacity; absent if the policy proves none."""
    prices: Floats | None = None
    """(R,): marginal utility of one more unit of each resource."""
    released: tuple[int, ...] = ()
    """Jobs that must run but get nothing, because all of them together do not fit."""
    spare: frozenset[int] = frozenset()
    """Jobs whose next better candidate (`ahead`) would still fit, on the servers too."""
    seconds: float = 0.0
    """Time that the decision took."""
    notes: tuple[str, ...] = ()

    def total(self, choice: Ints) -> float:
        """Return the total utility of another choice of columns (J,), as the policy defines utility."""
        return float(self.utilities[np.arange(len(choice)), choice].sum())

    def ahead(self, problem: Problem, jobs: Ints) -> Ints:
        """Return, for some jobs (n,), the smallest candidate by dominant share that is better than what each gets.

        It is 0 for a job that has none.
        """
        utilities = self.utilities[jobs]
        chosen = utilities[np.arange(len(jobs)), self.choice[jobs]][:, None]
        better = problem.offered[jobs] & (utilities > chosen + 1e-12 * np.abs(chosen))
        better[:, 0] = False
        return np.where(better.any(axis=1), np.where(better, problem.share[jobs], np.inf).argmin(axis=1), 0)

    @property
    def gap(self) -> float | None:
        """Upper bound on how much better another choice can be, relative to `value`."""
        if self.bound is None:
            return None
        missing = max(self.bound - self.value, 0.0)
        return missing / abs(self.value) if self.value else (0.0 if missing <= 0 else float("inf"))


def chosen(problem: Problem, policy: str, choice: NDArray[np.integer], **proof: object) -> Solution:
    """Return the solution for a `choice` of columns (J,), valued by the problem's own values.

    `proof` sets other fields of the solution, such as `bound` and `prices`.
    """
    columns = np.asarray(choice, dtype=np.intp)
    return Solution(policy, columns, problem.total(columns), problem.utilities, **proof)  # type: ignore[arg-type]
