"""Why a job got what it got, in one sentence."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.allotment import Allotment
from sizewright.cluster.problem import ROUNDING, Floats, Problem
from sizewright.cluster.tables import JobTables, amount, named

BY_REQUEST = ("fifo", "sjf")
"""Policies that give what is asked for, or nothing."""


def why(tables: JobTables, answer: Allotment, job: int) -> str:
    """Told by the prices of what it takes, and by what is left."""
    problem, column = tables.problem, int(answer.choice[job])
    if job in answer.released:
        return "Jobs that may not wait do not all fit, and it is one of those that make room."
    if column == 0:
        return _waits(tables, answer, job)
    if answer.policy in BY_REQUEST and problem.facts is not None and column == problem.facts.requested[job]:
        return "It is what it asks for."
    worth = answer.worth[job]
    larger = [k for k in _offered(problem, job) if worth[k] > worth[column] + 1e-12 * abs(worth[column])]
    if not larger:
        return "It is worth most of all its candidates."
    ahead = min(larger, key=lambda k: (problem.share[job, k], k))
    gain = float(worth[ahead] - worth[column])
    more = problem.needs[job, ahead] - problem.needs[job, column]
    gains = f"{gain / worth[column]:.1%}" if worth[column] > 0 else f"{gain:.3g}"
    against = _against(problem, answer, gain, more)
    return f"{_described(tables, job, ahead)} would be worth {gains} more, but {against}."


def _waits(tables: JobTables, answer: Allotment, job: int) -> str:
    problem, columns = tables.problem, _offered(tables.problem, job)
    least = min(columns, key=lambda k: (problem.share[job, k], k))
    gain = float(answer.worth[job, least] - answer.worth[job, 0])
    against = _against(problem, answer, gain, problem.needs[job, least])
    return f"Its least candidate would be {_described(tables, job, least)}, but {against}."


def _against(problem: Problem, answer: Allotment, gain: float, more: Floats) -> str:
    """What stands against more: it is not there, others make more of it, or the policy's order."""
    slack = np.maximum(problem.capacity - problem.used(answer.choice), 0.0)
    prices = answer.prices if answer.prices is not None else np.zeros(len(more))
    paid = float(np.maximum(more, 0) @ prices)
    short = np.flatnonzero(more > slack + ROUNDING * problem.capacity)
    dear = f"to others that is worth {paid / gain:.3g} times as much" if paid > gain > 0 else ""
    if len(short):
        name, most = problem.resources[short[0]], short[0]
        there = 0.0 if slack[most] <= ROUNDING * problem.capacity[most] else float(slack[most])
        left = f"it takes {amount(name, float(more[most]))} more {named(name)} and {amount(name, there)} are left"
        return f"{left}; {dear}" if dear else left
    if answer.full:
        return "its replicas do not fit on what is left of the servers"
    return dear or f"{answer.policy} does not go by that"


def _offered(problem: Problem, job: int) -> list[int]:
    return [int(k) for k in np.flatnonzero(problem.offered[job]) if k]


def _described(tables: JobTables, job: int, column: int) -> str:
    allocation = tables.allocation(job, column)
    return allocation.describe() if allocation else "nothing"
