"""Huawei's allocator: a mixed-integer programme for the greatest progress of training (arXiv 2109.03389)."""

from __future__ import annotations

from dataclasses import replace

from sizewright.cluster.allocators._base import Allocator, facts_of, valued
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.allotment import Allotment
from sizewright.cluster.problem import Problem
from sizewright.cluster.values import progress


class ProgressMip(Allocator):
    """The choice of the greatest sum of shares of the jobs' work that are done until the next decision.

    The formulation is a reconstruction: the paper does not give its own in detail.
    """

    name = "progress-mip"
    origin = "reconstruction of arXiv 2109.03389"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        facts = facts_of(problem, self.name)
        answer = Mip().choose(valued(problem, progress(facts, problem.current)), until)
        return replace(answer, policy=self.name)
