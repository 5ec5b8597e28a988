"""Our own: short jobs' progress first, by prices, and exactly where prices leave a gap and time allows."""

from __future__ import annotations

from dataclasses import replace

from sizewright.cluster.allocators._base import Allocator, valued
from sizewright.cluster.allocators.dynamic import Dynamic
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.allotment import Allotment
from sizewright.cluster.problem import Problem
from sizewright.cluster.values import weighted_progress


class Default(Allocator):
    """With facts of the jobs: the greatest progress, that of jobs with little left counting more; else the values as
    they are given.

    Prices are enough for many jobs. Where their gap is above `gap`, one resource in not too many units is left to the
    dynamic programme, all else to HiGHS, for as long as the time limit lets them.
    """

    name = "default"
    by_value = True

    def __init__(self, gap: float = 1e-3) -> None:
        self.gap = gap

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        if problem.facts is not None:
            values = weighted_progress(problem.facts, problem.current, problem.share, problem.least)
            problem = valued(problem, values)
        return replace(self._solved(problem, until), policy=self.name)

    def _solved(self, problem: Problem, until: float) -> Allotment:
        if problem.shape[2] == 1:
            answer = Dynamic(self.gap).choose(problem, until)
            if (answer.gap or 0.0) <= self.gap:
                return answer
        return Mip(self.gap).choose(problem, until)
