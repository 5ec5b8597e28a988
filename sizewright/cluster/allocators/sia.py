"""Sia's objective (Jayaram Subramanya et al., SOSP 2023)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator, by_arrival, scheduler_state_of, valued
from sizewright.cluster.allocators._queue import serve_in_order, smallest_options
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.problem.problem import ROUNDING, Bools, Problem
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.utilities import goodput

FAIRNESS_POWER = -0.5
"""As published."""
WAITING_PENALTY = 1.1
"""The penalty of a job that gets nothing, as published."""
MAX_GROWTH = 2.0
"""A job may at most double what it has in one decision, as published."""


class Sia(Allocator):
    """Minimises Σ goodput^−0.5 over the jobs that get something, plus 1.1 for each job that does not.

    As in the published scheduler, a job that does not run starts with its smallest size, of any kind, and a running one
    may at most double. Published is the largest size that a job was profiled at; here it is what the job has. Our own
    rule: while smallest sizes fit, in order of arrival, no job waits, since a job gains .1 by its first unit and .29 by
    its second: running jobs would double before new ones start.
    """

    name = "sia"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        scheduler_state = scheduler_state_of(problem, self.name)
        base = serve_in_order(problem, by_arrival(problem), smallest_options(problem), strict=False)
        offered = problem.offered.copy()
        offered[:, 0] &= base == 0
        problem = problem.replaced(offered=offered, fallback=base)
        problem = problem.replaced(offered=_within_reach(problem))
        relative = goodput(scheduler_state, problem.current, problem.offered)
        with np.errstate(divide="ignore"):
            penalty = np.where(relative > 0, relative, 1.0) ** FAIRNESS_POWER
            values = np.where(relative > 0, WAITING_PENALTY - penalty, 0.0)
        return replace(Mip().choose(valued(problem, values), until), policy=self.name)


def _within_reach(problem: Problem) -> Bools:
    """Return a mask (J, K) of the columns to which each job may go: of each kind at least its smallest."""
    rows, kinds, units = np.arange(len(problem.current)), problem.kinds, problem.units
    reach = np.where(problem.current > 0, MAX_GROWTH * units[rows, problem.current], 0.0)[:, None]
    is_candidate = problem.offered & (np.arange(problem.shape[1]) > 0)
    allowed = units <= reach * (1 + ROUNDING)
    for kind in np.unique(kinds):
        of_kind = np.where(is_candidate & (kinds == kind), units, np.inf)
        allowed |= np.isfinite(of_kind) & (of_kind == of_kind.min(axis=1, keepdims=True))
    allowed[rows, problem.floor] = True
    allowed[:, 0] = True
    return np.asarray(problem.offered & allowed)
