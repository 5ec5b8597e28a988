"""First-come-minimum-then-double: a reconstruction of the greedy baseline of arXiv 2109.03389."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, by_arrival
from sizewright.cluster.allocators._queue import grow_in_order, serve_in_order
from sizewright.cluster.problem.problem import Ints, Problem
from sizewright.cluster.problem.solution import Solution, chosen


class Doubling(Allocator):
    """Gives smallest candidates in order of arrival; then, round by round in the same order, doubles what fits."""

    name = "doubling"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        order = by_arrival(problem)
        choice = serve_in_order(problem, order, problem.smallest, strict=False)
        doubled = _doubled_columns(problem)
        growing = order[choice[order] > 0]
        while len(growing):
            before = choice[growing]
            columns = choice.copy()
            columns[growing] = doubled[growing, before]
            choice = grow_in_order(problem, choice, growing, columns)
            growing = growing[choice[growing] != before]
        return chosen(problem, self.name, choice)


def _doubled_columns(problem: Problem) -> Ints:
    """Return for each candidate (J, K) the largest better one of at most twice its dominant share, or itself."""
    share, utilities = problem.share, problem.utilities
    columns = np.tile(np.arange(share.shape[1]), (len(share), 1))
    for column in range(1, share.shape[1]):
        current = share[:, [column]]
        larger = (share > current) & (share <= 2 * current * (1 + 1e-9))
        better = problem.offered & larger & (utilities > utilities[:, [column]])
        largest = np.where(better, share, -1.0).argmax(axis=1)
        columns[:, column] = np.where(better.any(axis=1), largest, column)
    return columns
