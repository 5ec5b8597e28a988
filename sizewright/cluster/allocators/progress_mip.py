"""Huawei's allocator: a mixed-integer programme that maximises training progress (arXiv 2109.03389)."""

from __future__ import annotations

from dataclasses import replace

from sizewright.cluster.allocators._base import Allocator, scheduler_state_of, valued
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.utilities import progress


class ProgressMip(Allocator):
    """Maximises the sum of the shares of the jobs' work that are done until the next decision, ends within it included.

    The formulation is a reconstruction, since the paper does not give its own in detail (see `progress`).
    """

    name = "progress-mip"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        scheduler_state = scheduler_state_of(problem, self.name)
        answer = Mip().choose(valued(problem, progress(scheduler_state, problem.current)), until)
        return replace(answer, policy=self.name)
