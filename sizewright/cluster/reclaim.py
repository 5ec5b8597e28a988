"""Which loaned servers go back, so that the fewest jobs are preempted.

Base replicas keep a job alive: a job one of whose servers with base replicas goes back is preempted, once, however many
of its servers go. Flexible replicas are let go, and their job trains on with less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

Base = Mapping[str, frozenset[int]]
"""By job, the servers on which it has base replicas."""
Reclaim = Callable[[Sequence[int], Base, int, np.random.Generator], list[int]]
"""Loaned servers, where the base replicas are, how many are wanted back → which go back."""


def least_cost(servers: Sequence[int], base: Base, count: int, rng: np.random.Generator) -> list[int]:
    """Aryl's (arXiv 2202.07896): again and again the server of the least preemption cost, Σ over its jobs of 1 over the
    servers of that job; servers with flexible replicas only cost nothing, and go first.

    A job that is preempted leaves its other servers, whose costs are counted anew.
    """
    alive, left, chosen = dict(base), list(servers), list[int]()
    while left and len(chosen) < count:
        cost = {s: sum(1 / len(held) for held in alive.values() if s in held) for s in left}
        best = min(left, key=lambda s: (cost[s], s))
        chosen.append(best)
        left.remove(best)
        alive = {job: held for job, held in alive.items() if best not in held}
    return chosen


def smallest_count(servers: Sequence[int], base: Base, count: int, rng: np.random.Generator) -> list[int]:
    """Servers with the fewest jobs first."""
    jobs = {s: sum(s in held for held in base.values()) for s in servers}
    return sorted(servers, key=lambda s: (jobs[s], s))[:count]


def at_random(servers: Sequence[int], base: Base, count: int, rng: np.random.Generator) -> list[int]:
    """Any servers."""
    return [int(s) for s in rng.permutation(np.array(servers, dtype=np.intp))[:count]]


def exact(servers: Sequence[int], base: Base, count: int, rng: np.random.Generator) -> list[int]:
    """The fewest preempted jobs that are possible: a mixed-integer programme, for a yardstick."""
    jobs, S = [job for job, held in base.items() if held & set(servers)], len(servers)
    cost = np.concatenate([np.zeros(S), np.ones(len(jobs))])
    pairs = [(i, j) for j, job in enumerate(jobs) for i, s in enumerate(servers) if s in base[job]]
    rows = np.repeat(np.arange(len(pairs)), 2)
    columns = np.array([c for i, j in pairs for c in (i, S + j)], dtype=np.intp)
    signs = np.tile([1.0, -1.0], len(pairs))
    limits = [LinearConstraint(np.concatenate([np.ones(S), np.zeros(len(jobs))]), min(count, S), min(count, S))]
    if pairs:  # a server that goes takes its jobs with it
        limits.append(
            LinearConstraint(coo_array((signs, (rows, columns)), (len(pairs), len(cost))).tocsr(), -np.inf, 0)
        )
    found = milp(cost, constraints=limits, integrality=np.ones(len(cost), dtype=int), bounds=Bounds(0, 1))
    assert found.x is not None  # any set of so many servers will do
    return [s for s, taken in zip(servers, found.x[:S], strict=True) if taken > 0.5]


def preempted(base: Base, gone: Sequence[int]) -> list[str]:
    """Jobs that lose base replicas when these servers go."""
    return [job for job, held in base.items() if held & set(gone)]


RECLAIMS: dict[str, Reclaim] = {
    "least-cost": least_cost, "smallest-count": smallest_count, "random": at_random, "exact": exact,
}  # fmt: skip
