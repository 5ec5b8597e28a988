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

MOST_STATES = 4_000_000
"""Jobs × units, two bytes each; beyond, prices are as good."""


class Dynamic(Allocator):
    """The best choice, where one resource can run short and comes in units; within the time limit. Else the choice by
    prices, with a note that says so.

    Begins with prices and repair: the programme is left the jobs of which prices leave more than one candidate open to
    a better choice (Balas and Zemel's core), unless their gap is at most `gap` already.
    """

    name = "dynamic"
    origin = "Bellman 1957"
    by_value = True

    def __init__(self, gap: float = 0.0) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        all_, problem = problem, _of_what_binds(problem)
        scaled, unit = normal(problem)
        answer = in_units(self._solved(scaled, until), problem, unit)
        assert answer.prices is not None  # those of what binds: the others are free
        prices = np.zeros(len(all_.resources))
        prices[np.isin(all_.resources, problem.resources)] = answer.prices
        return replace(answer, prices=prices)

    def _solved(self, problem: Problem, until: float) -> Allotment:
        answer = replace(Lagrangian().choose(problem, until), policy=self.name)
        if (answer.gap or 0.0) <= self.gap:
            return answer
        try:
            choice = _programme(problem, answer, until)
        except _NoProgrammeError as why:
            return replace(answer, notes=(f"{why}: by prices instead of a dynamic programme",))
        best = max(answer.choice, choice, key=problem.total)
        return chosen(problem, self.name, best, bound=problem.total(best), prices=answer.prices)


class _NoProgrammeError(Exception):
    """Why there is none."""


def _programme(problem: Problem, answer: Allotment, until: float) -> Ints:
    """The best of the choices that prices leave open; raises _NoProgrammeError where it cannot be told."""
    units, capacity = _units_of(problem)
    assert answer.bound is not None  # that of the prices
    assert answer.prices is not None
    open_ = open_at(problem, answer.prices, answer.bound, answer.value)
    choice: Ints = open_.argmax(axis=1)
    core = np.flatnonzero(open_.sum(axis=1) > 1)
    left = capacity - int(np.delete(units[np.arange(len(units)), choice], core).sum())
    if len(core) * (left + 1) > MOST_STATES:
        raise _NoProgrammeError("too many units")
    choice[core] = _best(problem.worth[core], units[core], open_[core], left, until)
    return choice


def _of_what_binds(problem: Problem) -> Problem:
    """Without resources of which all jobs together cannot take what there is, as long as one is left."""
    most = np.where(problem.offered[:, :, None], problem.needs, 0.0).max(axis=1, initial=0.0).sum(axis=0)
    binds = most > problem.capacity
    binds[0] |= not binds.any()
    names = [name for name, kept in zip(problem.resources, binds, strict=True) if kept]
    return replace(problem, resources=names, capacity=problem.capacity[binds], needs=problem.needs[:, :, binds])


def _units_of(problem: Problem) -> tuple[Ints, int]:
    """(J, K) needs in units of their greatest common divisor, and the capacity in such units."""
    if problem.shape[2] != 1:
        raise _NoProgrammeError(f"{problem.shape[2]} resources can run short")
    needs = np.where(problem.offered, problem.needs[:, :, 0], 0.0)
    scaled = np.round(needs * 1000)
    if scaled.max(initial=0.0) >= 2.0**63 or np.abs(scaled - needs * 1000).max(initial=0.0) > 1e-6:
        raise _NoProgrammeError(f"needs of {problem.resources[0]} have no common unit")
    unit = int(np.gcd.reduce(scaled.astype(np.int64), axis=None)) or 1
    return (scaled / unit).astype(np.intp), int(problem.capacity[0] * (1 + ROUNDING) * 1000 / unit)


def _best(worth: Floats, units: Ints, open_: Bools, capacity: int, until: float) -> Ints:
    """Job by job the best worth of every capacity, then back along what was taken."""
    J = len(units)
    best: Floats = np.zeros(capacity + 1)
    taken = np.zeros((J, capacity + 1), dtype=np.int16)
    for job in range(J):
        if time.perf_counter() > until:
            raise _NoProgrammeError("out of time")
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
