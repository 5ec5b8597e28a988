"""Exact dynamic programme over the units of one resource (the multiple-choice knapsack)."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator, in_units, normal
from sizewright.cluster.allocators._dual import open_at
from sizewright.cluster.allocators.lagrangian import Lagrangian
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.problem import ROUNDING, Bools, Floats, Ints, Problem
from sizewright.errors import InputError

MOST_STATES = 4_000_000
"""Jobs × units, two bytes each; beyond, prices are as good."""


class Dynamic(Allocator):
    """The best choice, where there is one resource and it comes in units; within the time limit.

    Begins with prices and repair: the programme is left the jobs of which prices leave more than one candidate open to
    a better choice (Balas and Zemel's core), unless their gap is at most `gap` already.
    """

    name = "dynamic"
    origin = "Bellman 1957"
    by_value = True

    def __init__(self, gap: float = 0.0) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`. Raises InputError for several resources, or for needs of no common unit."""
        all_, problem = problem, _of_what_binds(problem)
        scaled, unit = normal(problem)
        answer = in_units(self._solved(scaled, *units_of(problem), until), problem, unit)
        assert answer.prices is not None  # those of what binds: the others are free
        prices = np.zeros(len(all_.resources))
        prices[np.isin(all_.resources, problem.resources)] = answer.prices
        return replace(answer, prices=prices)

    def _solved(self, problem: Problem, units: Ints, capacity: int, until: float) -> Allotment:
        answer = replace(Lagrangian().choose(problem, until), policy=self.name)
        assert answer.bound is not None  # that of the prices
        assert answer.prices is not None
        if (answer.gap or 0.0) <= self.gap:
            return answer
        open_ = open_at(problem, answer.prices, answer.bound, answer.value)
        choice = open_.argmax(axis=1)
        core = np.flatnonzero(open_.sum(axis=1) > 1)
        left = capacity - int(np.delete(units[np.arange(len(units)), choice], core).sum())
        if len(core) * (left + 1) > MOST_STATES:
            return replace(answer, notes=("too many units for a programme: by prices instead",))
        found = _best(problem.worth[core], units[core], open_[core], left, until)
        if found is None:
            return replace(answer, notes=("out of time: by prices instead",))
        choice[core] = found
        best = max(answer.choice, choice, key=problem.total)
        return chosen(problem, self.name, best, bound=problem.total(best), prices=answer.prices)


def _of_what_binds(problem: Problem) -> Problem:
    """Without resources of which all jobs together cannot take what there is, as long as one is left."""
    most = np.where(problem.offered[:, :, None], problem.needs, 0.0).max(axis=1, initial=0.0).sum(axis=0)
    binds = most > problem.capacity
    binds[0] |= not binds.any()
    names = [name for name, kept in zip(problem.resources, binds, strict=True) if kept]
    return replace(problem, resources=names, capacity=problem.capacity[binds], needs=problem.needs[:, :, binds])


def units_of(problem: Problem) -> tuple[Ints, int]:
    """(J, K) needs in units of their greatest common divisor, and the capacity in such units."""
    if problem.shape[2] != 1:
        raise InputError(
            f"The dynamic programme is for one resource; there are {problem.shape[2]}.", "Take mip or lagrangian."
        )
    needs = np.where(problem.offered, problem.needs[:, :, 0], 0.0)
    scaled = np.round(needs * 1000)
    unit = int(np.gcd.reduce(scaled.astype(np.int64), axis=None)) or 1
    capacity = int(problem.capacity[0] * (1 + ROUNDING) * 1000 / unit)
    if np.abs(scaled - needs * 1000).max(initial=0.0) > 1e-6:
        raise InputError(
            f"Needs of {problem.resources[0]} have no common unit of a thousandth or more.",
            "Round them up, or take mip or lagrangian.",
        )
    return (scaled / unit).astype(np.intp), capacity


def _best(worth: Floats, units: Ints, open_: Bools, capacity: int, until: float) -> Ints | None:
    """Job by job the best worth of every capacity, then back along what was taken; None when out of time."""
    J = len(units)
    best: Floats = np.zeros(capacity + 1)
    taken = np.zeros((J, capacity + 1), dtype=np.int16)
    for job in range(J):
        if time.perf_counter() > until:
            return None
        after = np.full(capacity + 1, -np.inf)
        for column in np.flatnonzero(open_[job] & (units[job] <= capacity)):
            need = units[job, column]
            candidate = best[: capacity + 1 - need] + worth[job, column]
            better = candidate > after[need:]
            after[need:][better] = candidate[better]
            taken[job, need:][better] = column
        best = after
    choice, left = np.zeros(J, dtype=np.intp), int(best.argmax())
    for job in range(J - 1, -1, -1):
        choice[job] = taken[job, left]
        left -= units[job, choice[job]]
    return choice
