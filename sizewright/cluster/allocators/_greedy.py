"""A greedy choice: upgrades by gain per dominant share, or per price where jobs can use several kinds of resources."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allocators._base import normalise
from sizewright.cluster.allocators._dual import solve_dual
from sizewright.cluster.allocators._greedy_upgrades import climb
from sizewright.cluster.allocators._queue import grow_in_order
from sizewright.cluster.problem.problem import Ints, Problem

MIN_PRICE = 1e-6
"""Least price of all capacities together, relative to the greatest utility, so that no candidate is free."""


def greedy(problem: Problem, until: float, *, steepest: bool) -> Ints:
    """Return a choice (J,): upgrades from the floor, the greatest gain per size first (see `climb`).

    The size is the dominant share. It does not tell which kind of a resource is wanted most: if jobs can use several
    kinds, the size is the price of what a candidate takes (see `solve_dual`), and of two choices the better one is
    returned. The second begins with what jobs would take at these prices, the greatest gain first, while it fits.
    """
    if not problem.has_several_kinds.any():
        return climb(problem, problem.share, problem.floor, steepest=steepest)
    scaled, _ = normalise(problem)
    dual = solve_dual(scaled, until)
    size = np.maximum(problem.needs @ dual.prices, MIN_PRICE * problem.share)
    rows = np.arange(len(problem.current))
    gain = scaled.utilities[rows, dual.choice] - scaled.utilities[rows, problem.floor] - size[rows, dual.choice]
    queue = np.argsort(-gain, kind="stable")
    start = grow_in_order(problem, problem.floor, queue[dual.choice[queue] > 0], dual.choice[:, None])
    choices = [climb(problem, size, each, steepest=steepest) for each in (problem.floor, start)]
    return max(choices, key=problem.total)
