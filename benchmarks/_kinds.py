"""Policies on several kinds of GPUs: idle kinds, decisions that are undone, and the share of the bound.

Random problems have cores and two or three kinds of GPUs (`sizewright.testing.problems.random_kinds_problem`). Those on
measured speeds have the families of Gavel's throughputs on K80, P100 and V100, alone and on 2, 4 and 8 GPUs; a job is
worth its speed relative to one V100, in half of the problems times a lognormal weight (σ .5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._gavel import KINDS, throughputs
from benchmarks._report import choose
from sizewright.cluster.allocators.registry import ALLOCATORS, get_allocator
from sizewright.cluster.problem.problem import Problem
from sizewright.testing.problems import random_kinds_problem, waiting_with_room

PROBLEMS = choose(1_000, 1_000, 5)
JOBS = choose((10, 30, 100, 300), (10, 30, 100, 300), (10,))
SEEDS = choose(8, 3, 1)
LOADS = (0.7, 1.5, 3.0)
LIMIT_S = 5.0
COUNTS = (1, 2, 4, 8)
GROWING = ("sia",)
"""Policies that may double a job at each decision. Only changes that are undone count."""


def kinds_figures() -> tuple[dict[str, float], dict[str, Any]]:
    """Return the figures over all policies that take several kinds, and those of each policy."""
    names = [name for name in ALLOCATORS if not get_allocator(name).one_kind]
    rows = {name: _idle_and_undone(name) for name in names}
    shares = {name: _share_of_bound(name) for name in names if get_allocator(name).by_value}
    for name, row in rows.items():
        of_bound = f"{shares[name]:8.3f} of the bound at least" if shares.get(name) else ""
        print(f"{name:<18}{row['kinds_idle']:>4} idle {row['thrash']:>4} undone of {PROBLEMS} {of_bound}", flush=True)
    figures: dict[str, float] = {key: sum(row[key] for row in rows.values()) for key in ("kinds_idle", "thrash")}
    if shares and all(share is not None for share in shares.values()):
        figures["kinds_of_bound"] = min(share for share in shares.values() if share is not None)
    return figures, {name: {**row, "of_bound": shares.get(name)} for name, row in rows.items()}


def _idle_and_undone(name: str) -> dict[str, int]:
    """Count random problems in which a job waits beside what it could use, and in which a repeated decision changes."""
    allocator, idle, undone = get_allocator(name), 0, 0
    for seed in range(PROBLEMS):
        problem = random_kinds_problem(seed)
        answer = allocator(problem, LIMIT_S)
        idle += bool(len(waiting_with_room(problem, answer, allocator)))
        again = allocator(replace(problem, current=answer.choice), LIMIT_S)
        changed = again.choice != answer.choice
        if name in GROWING:
            changed &= again.choice == problem.current
        undone += bool(changed.any())
    return {"kinds_idle": idle, "thrash": undone}


def _share_of_bound(name: str) -> float | None:
    """Return the least share of the bound of the total utility that a policy reaches; None without the data."""
    shares = []
    for jobs in JOBS:
        for load in LOADS:
            for seed in range(SEEDS):
                problem = gavel_problem(jobs, load, seed)
                if problem is None:
                    return None
                bound = get_allocator("lagrangian")(problem, LIMIT_S).bound or 0.0
                shares.append(get_allocator(name)(problem, LIMIT_S).value / bound)
    return min(shares)


def gavel_problem(jobs: int, load: float, seed: int) -> Problem | None:
    """Return a problem of three kinds of GPUs, three for each job at `load` 1, or None if the data is missing."""
    measured = throughputs()
    if not measured:
        return None
    rng = np.random.default_rng(seed)
    columns = [(kind, count) for kind in range(len(KINDS)) for count in COUNTS]
    needs = np.zeros((jobs, 1 + len(columns), len(KINDS)))
    values = np.zeros((jobs, 1 + len(columns)))
    families = sorted(measured)
    weights = rng.lognormal(0, 0.5 * (seed % 2), jobs)
    for j in range(jobs):
        speeds = measured[families[rng.integers(len(families))]]
        for k, (kind, count) in enumerate(columns, 1):
            needs[j, k, kind] = count
            values[j, k] = weights[j] * speeds.get((KINDS[kind], count), 0.0) / speeds["v100", 1]
    offered = values > 0
    offered[:, 0] = True
    capacity = np.maximum(np.round(3 * jobs / load * rng.dirichlet(np.full(len(KINDS), 3.0))), 1.0)
    return Problem(
        [f"job-{j}" for j in range(jobs)], [f"gpu:{kind}" for kind in KINDS], capacity, needs, values, offered,
        np.zeros(jobs, dtype=np.intp), np.zeros(jobs),
    )  # fmt: skip
