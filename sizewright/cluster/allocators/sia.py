"""Sia's objective (Jayaram Subramanya et al., SOSP 2023)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator, facts_of, valued
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.allotment import Allotment
from sizewright.cluster.problem import Problem
from sizewright.cluster.values import goodput

POWER, WAITING = -0.5, 1.1
"""Fairness power and the penalty of a job that gets nothing, as published."""


class Sia(Allocator):
    """Least Σ goodput^−0.5 over jobs that get something, plus 1.1 for each that does not."""

    name = "sia"
    origin = "Sia, SOSP 2023"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        relative = goodput(facts_of(problem, self.name), problem.current, problem.offered)
        with np.errstate(divide="ignore"):
            values = np.where(relative > 0, WAITING - np.where(relative > 0, relative, 1.0) ** POWER, 0.0)
        return replace(Mip().choose(valued(problem, values), until), policy=self.name)
