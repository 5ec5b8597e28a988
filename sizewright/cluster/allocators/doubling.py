"""First-come-minimum-then-double: a reconstruction of the greedy baseline of arXiv 2109.03389."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import Allocator, by_arrival
from sizewright.cluster.allocators._queue import grow_in_order, options_of, serve_in_order, smallest_options
from sizewright.cluster.allocators._settle import settled
from sizewright.cluster.problem.problem import Ints, Problem
from sizewright.cluster.problem.solution import Solution, chosen


class Doubling(Allocator):
    """Gives smallest candidates in order of arrival; then, round by round in the same order, doubles what fits.

    A job whose kind of GPU is used up doubles on another kind.
    """

    name = "doubling"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        return chosen(problem, self.name, settled(problem, self._decide))

    def _decide(self, problem: Problem) -> Ints:
        order = by_arrival(problem)
        choice = serve_in_order(problem, order, smallest_options(problem), strict=False)
        doubled = _doubled_columns(problem)
        growing = order[choice[order] > 0]
        while len(growing):
            before = choice[growing]
            columns = choice.copy()
            columns[growing] = doubled[growing, before]
            options = options_of(problem, columns)
            rows = np.arange(len(choice))[:, None]
            is_better = problem.values[rows, options] > problem.values[rows, choice[:, None]]
            choice = grow_in_order(problem, choice, growing, np.where(is_better, options, -1))
            growing = growing[choice[growing] != before]
        return choice


def _doubled_columns(problem: Problem) -> Ints:
    """Return for each candidate (J, K) the largest better one of its kind, of at most twice its share, or itself."""
    share, values, kinds = problem.share, problem.values, problem.kinds
    columns = np.tile(np.arange(share.shape[1]), (len(share), 1))
    for column in range(1, share.shape[1]):
        current = share[:, [column]]
        larger = (share > current) & (share <= 2 * current * (1 + 1e-9))
        better = problem.offered & larger & (values > values[:, [column]]) & (kinds == kinds[:, [column]])
        largest = np.where(better, share, -1.0).argmax(axis=1)
        columns[:, column] = np.where(better.any(axis=1), largest, column)
    return columns
