"""The default: weighted progress, by prices, and exactly if prices leave a gap and time allows."""

from __future__ import annotations

from dataclasses import replace

from sizewright.cluster.allocators._base import Allocator, valued
from sizewright.cluster.allocators.dynamic import Dynamic
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.utilities import weighted_progress


class Default(Allocator):
    """Maximises progress, weighted towards jobs with little work left; without a scheduler state, the problem's values.

    For many jobs prices are enough. If their gap exceeds `gap`, a problem of one resource with not too many units goes
    to the dynamic programme, and every other problem to HiGHS, until the time limit.
    """

    name = "default"
    by_value = True

    def __init__(self, gap: float = 1e-3) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        if problem.scheduler_state is not None:
            values = weighted_progress(problem.scheduler_state, problem.current, problem.share, problem.smallest)
            problem = valued(problem, values)
        if problem.shape[2] == 1:
            answer = Dynamic(self.gap).choose(problem, until)
            if (answer.gap or 0.0) <= self.gap:
                return replace(answer, policy=self.name)
        return replace(Mip(self.gap).choose(problem, until), policy=self.name)
