"""Exact dynamic programme over the units of one resource (the multiple-choice knapsack; Bellman 1957)."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator, denormalise, normalise
from sizewright.cluster.allocators._dual import open_candidates
from sizewright.cluster.allocators.lagrangian import Lagrangian
from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints, Problem
from sizewright.cluster.problem.solution import Solution, chosen

MAX_STATES = 4_000_000
"""Jobs × units, two bytes each; for larger problems prices are as good."""


class Dynamic(Allocator):
    """Finds the best choice within the time limit if only one resource can run short and it comes in units.

    For other problems it returns the choice by prices, with a note that says so.

    It begins with prices and repair. If their gap exceeds `gap`, the programme solves the jobs for which the prices
    leave more than one candidate open to a better choice (the core of Balas and Zemel).
    """

    name = "dynamic"
    by_value = True

    def __init__(self, gap: float = 0.0) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        binding = _with_binding_resources(problem)
        scaled, unit = normalise(binding)
        answer = denormalise(self._solve(scaled, until), binding, unit)
        assert answer.prices is not None
        prices = np.zeros(len(problem.resources))  # resources that do not bind are free
        prices[np.isin(problem.resources, binding.resources)] = answer.prices
        return replace(answer, prices=prices)

    def _solve(self, problem: Problem, until: float) -> Solution:
        answer = replace(Lagrangian().choose(problem, until), policy=self.name)
        if (answer.gap or 0.0) <= self.gap:
            return answer
        try:
            choice = _solve_core(problem, answer, until)
        except _NotApplicableError as reason:
            return replace(answer, notes=(f"solved by prices instead of a dynamic programme: {reason}",))
        best = max(answer.choice, choice, key=problem.total)
        return chosen(problem, self.name, best, bound=problem.total(best), prices=answer.prices)


class _NotApplicableError(Exception):
    """The dynamic programme cannot solve the problem; the message is the reason."""


def _solve_core(problem: Problem, answer: Solution, until: float) -> Ints:
    """Return the best of the choices (J,) that prices leave open; raise _NotApplicableError if that is not possible."""
    units, capacity = _in_units(problem)
    assert answer.bound is not None
    assert answer.prices is not None
    is_open = open_candidates(problem, answer.prices, answer.bound, answer.value)
    choice: Ints = is_open.argmax(axis=1)
    core = np.flatnonzero(is_open.sum(axis=1) > 1)
    remaining = capacity - int(np.delete(units[np.arange(len(units)), choice], core).sum())
    if len(core) * (remaining + 1) > MAX_STATES:
        raise _NotApplicableError("too many units")
    choice[core] = _solve_knapsack(problem.utilities[core], units[core], is_open[core], remaining, until)
    return choice


def _with_binding_resources(problem: Problem) -> Problem:
    """Return the problem without resources that cannot run short; at least one resource remains."""
    max_demand = np.where(problem.offered[:, :, None], problem.needs, 0.0).max(axis=1, initial=0.0).sum(axis=0)
    binds = max_demand > problem.capacity
    binds[0] |= not binds.any()
    names = [name for name, kept in zip(problem.resources, binds, strict=True) if kept]
    return replace(problem, resources=names, capacity=problem.capacity[binds], needs=problem.needs[:, :, binds])


def _in_units(problem: Problem) -> tuple[Ints, int]:
    """Return the needs (J, K) and the capacity in units of the needs' greatest common divisor."""
    if problem.shape[2] != 1:
        raise _NotApplicableError(f"{problem.shape[2]} resources can run short")
    needs = np.where(problem.offered, problem.needs[:, :, 0], 0.0)
    scaled = np.round(needs * 1000)
    if scaled.max(initial=0.0) >= 2.0**63 or np.abs(scaled - needs * 1000).max(initial=0.0) > 1e-6:
        raise _NotApplicableError(f"needs of {problem.resources[0]} have no common unit")
    unit = int(np.gcd.reduce(scaled.astype(np.int64), axis=None)) or 1
    return (scaled / unit).astype(np.intp), int(problem.capacity[0] * (1 + ROUNDING) * 1000 / unit)


def _solve_knapsack(utilities: Floats, units: Ints, is_open: Bools, capacity: int, until: float) -> Ints:
    """Return the best open columns (J,): compute the best utility for each capacity job by job, then trace back."""
    J = len(units)
    best: Floats = np.zeros(capacity + 1)
    columns = np.zeros((J, capacity + 1), dtype=np.int16)
    for job in range(J):
        if time.perf_counter() > until:
            raise _NotApplicableError("out of time")
        best_with_job = np.full(capacity + 1, -np.inf)
        for column in np.flatnonzero(is_open[job] & (units[job] <= capacity)):
            need = units[job, column]
            candidate = best[: capacity + 1 - need] + utilities[job, column]
            better = candidate > best_with_job[need:]
            best_with_job[need:][better] = candidate[better]
            columns[job, need:][better] = column
        best = best_with_job
    choice = np.zeros(J, dtype=np.intp)
    remaining = int(best.argmax())
    for job in range(J - 1, -1, -1):
        choice[job] = columns[job, remaining]
        remaining -= units[job, choice[job]]
    return choice
