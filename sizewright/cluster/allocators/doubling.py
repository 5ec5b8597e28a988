"""First-come-minimum-then-double: the greedy baseline of the MIP allocator's comparison, as far as it can be told."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, by_arrival
from sizewright.cluster.allocators._queue import first_that_fits, served
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import Ints, Problem


class Doubling(Allocator):
    """Least candidates in order of arrival; then, in the same order and round by round, each doubles while it fits."""

    name = "doubling"
    origin = "reconstruction of the greedy of arXiv 2109.03389"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        order = by_arrival(problem)
        choice = served(problem, order, problem.least, strict=False)
        growing = [int(job) for job in order if choice[job] > 0]
        while growing:
            growing = [job for job in growing if _double(problem, choice, job)]
        return chosen(problem, self.name, choice)


def _double(problem: Problem, choice: Ints, job: int) -> bool:
    """Whether a candidate of twice the dominant share, or the largest below it that gains, was there and fit."""
    share, now = problem.share[job], choice[job]
    above = np.flatnonzero(problem.offered[job] & (share > share[now]) & (share <= 2 * share[now] * (1 + 1e-9)))
    above = above[problem.worth[job, above] > problem.worth[job, now]]
    if not len(above):
        return False
    choice[job] = first_that_fits(problem, choice, job, [int(above[share[above].argmax()])])
    return bool(choice[job] != now)
