"""First-come-minimum-then-double: the greedy baseline of the MIP allocator's comparison, as far as it can be told."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, by_arrival
from sizewright.cluster.allocators._queue import grown, served
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
        doubled = _doubled(problem)
        growing = order[choice[order] > 0]
        while len(growing):
            before = choice[growing]
            wanted = choice.copy()
            wanted[growing] = doubled[growing, before]
            choice = grown(problem, choice, growing, wanted)
            growing = growing[choice[growing] != before]
        return chosen(problem, self.name, choice)


def _doubled(problem: Problem) -> Ints:
    """(J, K): of each candidate the one of twice its dominant share, or the largest below that gains; else itself."""
    share, worth = problem.share, problem.worth
    found = np.tile(np.arange(share.shape[1]), (len(share), 1))
    for column in range(1, share.shape[1]):
        now = share[:, [column]]
        better = problem.offered & (share > now) & (share <= 2 * now * (1 + 1e-9)) & (worth > worth[:, [column]])
        largest = np.where(better, share, -1.0).argmax(axis=1)
        found[:, column] = np.where(better.any(axis=1), largest, column)
    return found
