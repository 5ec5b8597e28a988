"""Why a job got what it got, in one sentence."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allotment import Allotment
from sizewright.cluster.candidates import amount, named
from sizewright.cluster.problem import ROUNDING, Problem
from sizewright.cluster.tables import JobTables

BY_REQUEST = ("fifo", "sjf")
"""Policies that give what is asked for, or nothing."""


def why(tables: JobTables, answer: Allotment, job: int) -> str:
    """Told by what is left, and by the prices of what it takes where that runs short."""
    problem, column = tables.problem, int(answer.choice[job])
    if job in answer.released:
        return "Jobs that may not wait do not all fit, and it is one of those that make room."
    if column and answer.policy in BY_REQUEST and problem.facts is not None and column == problem.facts.requested[job]:
        return "It is what it asks for."
    ahead = answer.ahead(problem, job)
    if not ahead:
        return (
            "It is worth most of all its candidates."
            if column
            else "None of its candidates is worth more than to wait."
        )
    against, described = _against(problem, answer, job, ahead), _described(tables, job, ahead)
    if not column:
        return f"Its least candidate would be {described}, but {against}."
    gain = float(answer.worth[job, ahead] - answer.worth[job, column])
    gains = f"{gain / answer.worth[job, column]:.1%}" if answer.worth[job, column] > 0 else f"{gain:.3g}"
    return f"{described} would be worth {gains} more, but {against}."


def _against(problem: Problem, answer: Allotment, job: int, ahead: int) -> str:
    """What stands against more: it is not there, and others make more of it; or the servers, or the policy's order."""
    column = int(answer.choice[job])
    more = problem.needs[job, ahead] - problem.needs[job, column]
    slack = np.maximum(problem.capacity - problem.used(answer.choice), 0.0)
    short = np.flatnonzero(more > slack + ROUNDING * problem.capacity)
    if not len(short):
        if job in answer.spare:
            return f"there is room for that, which {answer.policy} leaves over"
        return "its replicas do not fit on what is left of the servers"
    name, most = problem.resources[short[0]], short[0]
    there = 0.0 if slack[most] <= ROUNDING * problem.capacity[most] else float(slack[most])
    left = f"it takes {amount(name, float(more[most]))} more {named(name)} and {amount(name, there)} are left"
    gain = float(answer.worth[job, ahead] - answer.worth[job, column])
    paid = float(more[short] @ answer.prices[short]) if answer.prices is not None else 0.0
    return f"{left}; to others that is worth {paid / gain:.3g} times as much" if paid > gain else left


def _described(tables: JobTables, job: int, column: int) -> str:
    allocation = tables.allocation(job, column)
    return allocation.describe() if allocation else "nothing"
