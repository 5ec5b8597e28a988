"""Divide the capacity of a cluster among jobs: an allocator chooses candidates, placement checks that they fit."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._dual import solve_dual
from sizewright.cluster.placement.layout import (
    Layout,
    Places,
    jobs_with_room,
    place_choice,
    place_running_jobs,
    places_of,
    upgrade_placed_jobs,
)
from sizewright.cluster.placement.placement import Placement, Servers
from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.problem.problem import Floats, Ints, Problem
from sizewright.cluster.problem.solution import OUT_OF_TIME, Solution
from sizewright.cluster.problem.tables import JobTables
from sizewright.spec import Cluster

ROUNDS = 4
"""The allocator solves the problem at most this often, each time without the candidates that could not be placed."""


def resources_of(cluster: Cluster) -> list[str]:
    """Return the names of the resources: GPUs by kind, the scarcest resource, come first; then cores and memory."""
    kinds = dict.fromkeys(host.gpu.kind for host in cluster.hosts if host.gpu)
    return [*(GPU + kind for kind in kinds), "cpu", "memory_bytes"]


def servers_of(cluster: Cluster) -> Servers:
    """Return one server for each host, named by its kind and a number."""
    resources = resources_of(cluster)
    names: list[str] = []
    gpu_kinds: list[str] = []
    capacity: list[list[float]] = []
    count_by_kind = Counter[str]()
    for host in cluster.hosts:
        amounts = {"cpu": host.cpu, "memory_bytes": float(host.memory_bytes)}
        if host.gpu:
            amounts[GPU + host.gpu.kind] = float(host.gpu.count)
        for _ in range(host.count):
            names.append(f"{host.kind}-{count_by_kind[host.kind]}")
            count_by_kind[host.kind] += 1
            gpu_kinds.append(host.gpu.kind if host.gpu else "")
            capacity.append([amounts.get(name, 0.0) for name in resources])
    return Servers(names, gpu_kinds, np.array(capacity, dtype=float).reshape(len(capacity), len(resources)))


def allocate_capacity(
    tables: JobTables, servers: Servers, policy: Allocator, time_limit_s: float, *, mixes: bool = False
) -> tuple[Solution, Places]:
    """Choose a candidate for each job such that all replicas fit on the servers, and return where they could run.

    A candidate that cannot be placed is not offered again; a job for which no candidate fits gets nothing. Where the
    policy maximises utility (its solution has a bound), smaller candidates are tried, and capacity that remains on the
    servers goes to the jobs that gain most from it. The bound covers all candidates, placed or not.

    Raises InputError if the servers that running jobs claim to be on do not exist or have no room for them.
    """
    started = time.perf_counter()
    running = place_running_jobs(tables, servers, mixes=mixes)
    search = _search(tables, running, policy, time_limit_s, started + time_limit_s)
    best = search.best
    notes = list(search.first.notes)
    if waiting := sum(int(best.choice[job] == 0) for job in best.unplaced):
        jobs = "1 job waits: its" if waiting == 1 else f"{waiting} jobs wait: their"
        notes.append(f"{jobs} replicas do not fit on the servers")
    if search.out_of_time or best.out_of_time:
        notes.append(OUT_OF_TIME)
    must_run = ~tables.problem.offered[:, 0]
    released = {*search.last.released, *map(int, np.flatnonzero((best.choice == 0) & must_run))}
    result = _with_bound(tables.problem, search.first, best.choice)
    result = replace(
        result,
        released=tuple(sorted(released)),
        spare=jobs_with_room(tables, result, best.placement),
        notes=tuple(dict.fromkeys(notes)),
        seconds=time.perf_counter() - started,
    )
    return result, places_of(tables, best)


class _Search(NamedTuple):
    """The first and the last solution of the policy, and the best layout of all its solutions."""

    first: Solution
    last: Solution
    best: Layout
    out_of_time: bool


def _search(tables: JobTables, running: Placement, policy: Allocator, time_limit_s: float, deadline: float) -> _Search:
    """Solve and place in turn, each time without the candidates that could not be placed, until all can be."""
    problem = tables.problem
    first = solution = policy(problem, time_limit_s)
    # Stopping a job that must run is finite, but far below everything else.
    utilities = np.where(np.isfinite(first.utilities), first.utilities, -1e9 * (1.0 + abs(first.value)))
    best: Layout | None = None
    out_of_time = False
    for _ in range(ROUNDS):
        if first.bound is None:
            layout = place_choice(tables, solution.choice, running.copy())
        else:
            layout = _best_layout(tables, solution.choice, running, utilities, deadline)
        if best is None or layout.total(utilities) > best.total(utilities):
            best = layout
        if not layout.unplaced:
            out_of_time = False
            break
        out_of_time = time.perf_counter() > deadline
        if out_of_time:
            break
        # A job that has no other candidate may wait.
        offered = problem.offered.copy()
        offered[layout.unplaced, solution.choice[layout.unplaced]] = False
        offered[layout.unplaced, 0] |= ~offered[layout.unplaced, 1:].any(axis=1)
        problem = replace(problem, offered=offered)
        solution = policy(problem, max(deadline - time.perf_counter(), 0.0))
    assert best is not None
    return _Search(first, solution, best, out_of_time)


def _best_layout(tables: JobTables, choice: Ints, running: Placement, utilities: Floats, deadline: float) -> Layout:
    """Place a choice (J,) in two orders, by size and by `utilities` (J, K), and return the better layout.

    In a cluster of several parts, the order by utilities is enough.
    """
    layouts = []
    for by_utility in (False, True) if running.parts == 1 else (True,):
        layout = place_choice(tables, choice, running.copy(), utilities, by_utility=by_utility)
        upgrade_placed_jobs(tables, layout, utilities, deadline)
        layouts.append(layout)
    return max(layouts, key=lambda layout: layout.total(utilities))


def _with_bound(problem: Problem, first: Solution, choice: Ints) -> Solution:
    """Return the solution for `choice` (J,) with the utilities, bound and prices of the solution before placement.

    The problem's own values are used where the policy has no bound, or a bound on some of the candidates only.
    """
    offered = problem.offered.copy()
    offered[:, 0] |= choice == 0
    problem = replace(problem, offered=offered)
    utilities = np.where((choice == 0)[:, None] & ~np.isfinite(first.utilities), 0.0, first.utilities)
    bound = first.bound
    prices = first.prices
    if bound is not None and np.isfinite(utilities[offered]).all():
        values = np.where(offered, utilities, 0.0)
        problem = replace(problem, values=values, change_price=np.zeros(len(choice)))
    else:
        bound = prices = None
    if bound is None or prices is None:
        dual = solve_dual(problem, float("inf"))
        bound = dual.bound if bound is None else bound
        prices = dual.prices
    value = problem.total(choice)
    return replace(
        first, choice=choice, utilities=problem.utilities, value=value, bound=max(bound, value), prices=prices
    )
