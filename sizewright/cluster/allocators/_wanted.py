"""The column that a job asks for."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem import Ints, Problem


def wanted_of(problem: Problem) -> Ints:
    """(J,): what its user asked for, where that is offered; else its least candidate."""
    if problem.facts is None:
        return problem.least
    asked = problem.facts.requested
    offered = (asked > 0) & problem.offered[np.arange(len(asked)), asked]
    return np.where(offered, asked, problem.least)
