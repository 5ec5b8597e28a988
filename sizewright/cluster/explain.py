"""Explain in one sentence why a job got its allocation."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.candidates import format_amount, resource_label
from sizewright.cluster.problem.problem import ROUNDING, Problem
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.tables import JobTables
from sizewright.formatting import format_percent

REQUEST_POLICIES = ("fifo", "fifo-backfill", "sjf", "srsf", "tiresias")
"""Policies that give each job what it requests, or nothing."""


def explain(tables: JobTables, answer: Solution, job: int) -> str:
    """Explain what a job got by the free capacity, and by the prices of the resources that are short."""
    problem, column = tables.problem, int(answer.choice[job])
    if job in answer.released:
        return "The jobs that must not wait do not all fit, and this is one of those that make room."
    requested = problem.scheduler_state.requested[job] if problem.scheduler_state is not None else None
    if column and column == requested and answer.policy.split(":")[0] in REQUEST_POLICIES:
        return "This is what the job requests."
    ahead = int(answer.ahead(problem, np.array([job]))[0])
    if not ahead:
        if column:
            return "No other candidate of this job has a higher utility."
        return "None of its candidates has a higher utility than waiting."
    obstacle = _obstacle(problem, answer, job, ahead)
    allocation = tables.allocation(job, ahead)
    description = allocation.describe() if allocation else "nothing"
    if not column:
        return f"Its smallest candidate is {description}, but {obstacle}."
    utility = answer.utilities[job, column]
    gain = float(answer.utilities[job, ahead] - utility)
    gain_text = format_percent(gain / utility, 1) if utility > 0 else f"{gain:.3g}"
    return f"{description} would have {gain_text} more utility, but {obstacle}."


def _obstacle(problem: Problem, answer: Solution, job: int, ahead: int) -> str:
    """Return why the job does not get `ahead`: free capacity, room on the servers, or the policy's order."""
    column = int(answer.choice[job])
    more = problem.needs[job, ahead] - problem.needs[job, column]
    slack = np.maximum(problem.capacity - problem.used(answer.choice), 0.0)
    short = np.flatnonzero(more > slack + ROUNDING * problem.capacity)
    if not len(short):
        if job in answer.spare:
            return f"{answer.policy} does not use the room that there is for it"
        return "its replicas do not fit on the free parts of the servers"
    first = short[0]
    name = problem.resources[first]
    free = 0.0 if slack[first] <= ROUNDING * problem.capacity[first] else float(slack[first])
    needed, label = format_amount(name, float(more[first])), resource_label(name)
    text = f"it needs {needed} more {label} and {format_amount(name, free)} are free"
    gain = float(answer.utilities[job, ahead] - answer.utilities[job, column])
    price = float(more[short] @ answer.prices[short]) if answer.prices is not None else 0.0
    if price > gain:
        return f"{text}; for other jobs they have {price / gain:.3g} times the utility"
    return text
