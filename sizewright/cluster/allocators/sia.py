"""Sia's objective (Jayaram Subramanya et al., SOSP 2023)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator, scheduler_state_of, valued
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.utilities import goodput

FAIRNESS_POWER = -0.5
"""As published."""
WAITING_PENALTY = 1.1
"""The penalty of a job that gets nothing, as published."""


class Sia(Allocator):
    """Minimises Σ goodput^−0.5 over the jobs that get something, plus 1.1 for each job that does not."""

    name = "sia"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        relative = goodput(scheduler_state_of(problem, self.name), problem.current, problem.offered)
        with np.errstate(divide="ignore"):
            penalty = np.where(relative > 0, relative, 1.0) ** FAIRNESS_POWER
            values = np.where(relative > 0, WAITING_PENALTY - penalty, 0.0)
        return replace(Mip().choose(valued(problem, values), until), policy=self.name)
