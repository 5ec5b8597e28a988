"""Choose the loaned servers that go back such that few jobs are preempted.

Base replicas keep a job alive: a job is preempted once, however many of its servers with base replicas go back.
Flexible replicas are dropped, and their job continues with fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

Base = Mapping[str, frozenset[int]]
"""For each job, the servers on which it has base replicas."""
Reclaim = Callable[[Sequence[int], Base, int, np.random.Generator], list[int]]
"""Loaned servers, the servers of base replicas, the number of servers to return → the servers that go back."""


def least_cost(servers: Sequence[int], base: Base, count: int, rng: np.random.Generator) -> list[int]:
    """Return the server of the lowest preemption cost, again and again, as Aryl does (arXiv 2202.07896).

    The cost of a server is Σ over its jobs of 1 / (number of servers of that job); servers with flexible replicas only
    cost nothing. Costs are updated after each server, since a preempted job leaves its other servers.
    """
    running = dict(base)
    remaining = list(servers)
    chosen: list[int] = []
    while remaining and len(chosen) < count:
        cost = {s: sum(1 / len(where) for where in running.values() if s in where) for s in remaining}
        cheapest = min(remaining, key=lambda s: (cost[s], s))
        chosen.append(cheapest)
        remaining.remove(cheapest)
        running = {job: where for job, where in running.items() if cheapest not in where}
    return chosen


def smallest_count(servers: Sequence[int], base: Base, count: int, rng: np.random.Generator) -> list[int]:
    """Return the servers with the fewest jobs."""
    jobs = {s: sum(s in where for where in base.values()) for s in servers}
    return sorted(servers, key=lambda s: (jobs[s], s))[:count]


def at_random(servers: Sequence[int], base: Base, count: int, rng: np.random.Generator) -> list[int]:
    """Return random servers."""
    return [int(s) for s in rng.permutation(np.array(servers, dtype=np.intp))[:count]]


def exact(servers: Sequence[int], base: Base, count: int, rng: np.random.Generator) -> list[int]:
    """Return the servers that preempt the fewest jobs, by a mixed-integer programme; a reference for the others."""
    jobs = [job for job, where in base.items() if where & set(servers)]
    S = len(servers)
    cost = np.concatenate([np.zeros(S), np.ones(len(jobs))])
    size = min(count, S)
    constraints = [LinearConstraint(np.concatenate([np.ones(S), np.zeros(len(jobs))]), size, size)]
    pairs = [(i, j) for j, job in enumerate(jobs) for i, s in enumerate(servers) if s in base[job]]
    if pairs:  # a server that goes back preempts its jobs
        rows = np.repeat(np.arange(len(pairs)), 2)
        columns = np.array([c for i, j in pairs for c in (i, S + j)], dtype=np.intp)
        signs = np.tile([1.0, -1.0], len(pairs))
        matrix = coo_array((signs, (rows, columns)), (len(pairs), len(cost))).tocsr()
        constraints.append(LinearConstraint(matrix, -np.inf, 0))
    result = milp(cost, constraints=constraints, integrality=np.ones(len(cost), dtype=int), bounds=Bounds(0, 1))
    assert result.x is not None  # any set of `count` servers is feasible
    return [s for s, taken in zip(servers, result.x[:S], strict=True) if taken > 0.5]


def preempted(base: Base, gone: Sequence[int]) -> list[str]:
    """Return the jobs that lose base replicas if these servers go back."""
    return [job for job, where in base.items() if where & set(gone)]


RECLAIMS: dict[str, Reclaim] = {
    "least-cost": least_cost,
    "smallest-count": smallest_count,
    "random": at_random,
    "exact": exact,
}
