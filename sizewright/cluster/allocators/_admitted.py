"""Who gets anything at all: base demand, the soonest done first; what more there is goes by completion time saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import valued
from sizewright.cluster.allocators._queue import served
from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import Problem
from sizewright.cluster.values import completion_saved


def shortest_admitted(problem: Problem, facts: Facts) -> Problem:
    """The problem of the jobs whose least candidates fit, the soonest done first; the others are offered nothing.

    Values are seconds by which each candidate is done earlier than the least.
    """
    left = facts.seconds_left()[np.arange(len(problem.current)), problem.least]
    base = served(problem, np.argsort(left, kind="stable"), problem.least, strict=False)
    offered = problem.offered & (base > 0)[:, None]
    offered[:, 0] = base == 0
    return replace(valued(problem, completion_saved(facts, problem.least)), offered=offered, fallback=base)
