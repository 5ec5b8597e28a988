"""One capacity divided over jobs that run on servers: the allocator chooses, placement tells what can be had."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._dual import prices_of
from sizewright.cluster.allotment import OUT_OF_TIME, Allotment
from sizewright.cluster.candidates import GPU
from sizewright.cluster.layout import Layout, Places, filled, held, laid_out, places_of, spare
from sizewright.cluster.placement import Placement, Servers
from sizewright.cluster.problem import Floats, Ints, Problem
from sizewright.cluster.tables import JobTables
from sizewright.spec import Cluster

ROUNDS = 4
"""Times that the allocator is asked anew, without what could not be placed."""


def resources_of(cluster: Cluster) -> list[str]:
    """GPUs by kind, the scarcest thing first; then cores and memory."""
    kinds = dict.fromkeys(host.gpu.kind for host in cluster.hosts if host.gpu)
    return [*(GPU + kind for kind in kinds), "cpu", "memory_bytes"]


def servers_of(cluster: Cluster) -> Servers:
    """One server for each host, named by its kind and a number."""
    resources, names, kinds, rows = resources_of(cluster), list[str](), list[str](), list[list[float]]()
    count = Counter[str]()
    for host in cluster.hosts:
        told = {"cpu": host.cpu, "memory_bytes": float(host.memory_bytes)}
        if host.gpu:
            told[GPU + host.gpu.kind] = float(host.gpu.count)
        names += [f"{host.kind}-{number}" for number in range(count[host.kind], count[host.kind] + host.count)]
        count[host.kind] += host.count
        kinds += [host.gpu.kind if host.gpu else ""] * host.count
        rows += [[told.get(name, 0.0) for name in resources]] * host.count
    return Servers(names, kinds, np.array(rows, dtype=float).reshape(len(rows), len(resources)))


def divide(
    tables: JobTables, servers: Servers, policy: Allocator, time_limit_s: float, *, mixes: bool = False
) -> tuple[Allotment, Places]:
    """What each job gets, so that its replicas fit on the servers; and where they could run.

    What cannot be placed is not offered again; jobs for which nothing is found get nothing. Where the policy goes by
    worth, smaller candidates are tried, and room that is left on the servers goes to whom it is worth most. The bound
    is that of all candidates, placed or not.

    Raises InputError for servers that running jobs cannot be on.
    """
    began, problem = time.perf_counter(), tables.problem
    until = began + time_limit_s
    running = held(tables, servers, mixes=mixes)
    first = answer = policy(problem, time_limit_s)
    worth = _counted(first)
    best, late = None, False
    for _ in range(ROUNDS):
        tried = _layouts(tables, answer.choice, running, worth if first.bound is not None else None, until)
        unplaced = tried.unplaced
        if best is None or tried.total(worth) > best.total(worth):
            best = tried
        late = bool(unplaced) and time.perf_counter() > until
        if late or not unplaced:
            break
        problem = _without(problem, answer.choice, unplaced)
        answer = policy(problem, max(until - time.perf_counter(), 0.0))
    assert best is not None
    released = {*answer.released, *map(int, np.flatnonzero((best.choice == 0) & ~tables.problem.offered[:, 0]))}
    notes = (*first.notes, *_told(best, late or best.late))
    answer = replace(_proved(tables.problem, first, best.choice), released=tuple(sorted(released)))
    answer = replace(answer, spare=spare(tables, answer, best.placement), notes=tuple(dict.fromkeys(notes)))
    return replace(answer, seconds=time.perf_counter() - began), places_of(tables, best)


def _layouts(tables: JobTables, choice: Ints, running: Placement, worth: Floats | None, until: float) -> Layout:
    """The best layout of a choice, tried in two orders where the policy goes by `worth` (J, K)."""
    if worth is None:
        return laid_out(tables, choice, running.copy())
    made = []
    for by_worth in (False, True):
        made.append(laid_out(tables, choice, running.copy(), worth, by_worth=by_worth))
        filled(tables, made[-1], worth, until)
    return max(made, key=lambda each: each.total(worth))


def _told(best: Layout, late: bool) -> list[str]:
    """Notes."""
    waiting = sum(int(best.choice[job] == 0) for job in best.unplaced)
    many = "1 job waits since its replicas do" if waiting == 1 else f"{waiting} jobs wait since their replicas do"
    told = [f"{many} not fit on the servers as they are"] if waiting else []
    return [*told, OUT_OF_TIME] if late else told


def _without(problem: Problem, choice: Ints, jobs: list[int]) -> Problem:
    offered = problem.offered.copy()
    offered[jobs, choice[jobs]] = False
    offered[jobs, 0] |= ~offered[jobs, 1:].any(axis=1)
    return replace(problem, offered=offered)


def _counted(first: Allotment) -> Floats:
    """(J, K): worth, that of putting off a job which may not wait being much less than any other."""
    return np.where(np.isfinite(first.worth), first.worth, -1e9 * (1.0 + abs(first.value)))


def _proved(problem: Problem, first: Allotment, choice: Ints) -> Allotment:
    """The choice by the values, the bound and the prices that were found before anything was placed; by the problem's
    values where the policy has no bound, or one that is of some candidates only."""
    offered = problem.offered.copy()
    offered[:, 0] |= choice == 0
    problem = replace(problem, offered=offered)
    counted, bound, prices = problem, first.bound, first.prices
    worth = np.where((choice == 0)[:, None] & ~np.isfinite(first.worth), 0.0, first.worth)
    if bound is not None and np.isfinite(worth[offered]).all():
        values = np.where(offered, worth, 0.0)
        counted = replace(problem, values=values, change_price=np.zeros(len(choice)))
    else:
        bound = prices = None
    if bound is None or prices is None:
        found = prices_of(counted, float("inf"))
        bound, prices = found.bound if bound is None else bound, found.each
    value = counted.total(choice)
    return replace(first, choice=choice, worth=counted.worth, value=value, bound=max(bound, value), prices=prices)
