"""One capacity divided over jobs that run on servers: the allocator chooses, placement tells what can be had."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._dual import prices_of
from sizewright.cluster.allotment import Allotment
from sizewright.cluster.placement import Held, Placement, Replicas, Servers
from sizewright.cluster.problem import Ints, Problem
from sizewright.cluster.tables import GPU, JobTables
from sizewright.spec import Cluster, Group, Role

ROUNDS = 4
"""Times that the allocator is asked anew, without what could not be placed."""

Places = dict[int, list[tuple[Role, Held]]]
"""By job, the servers of its groups."""


def resources_of(cluster: Cluster) -> list[str]:
    """GPUs by kind, the scarcest thing first; then cores and memory."""
    kinds = dict.fromkeys(host.gpu.kind for host in cluster.hosts if host.gpu)
    return [*(GPU + kind for kind in kinds), "cpu", "memory_bytes"]


def servers_of(cluster: Cluster) -> Servers:
    """One server for each host, named by its kind and a number."""
    resources, names, kinds, rows = resources_of(cluster), list[str](), list[str](), list[list[float]]()
    for host in cluster.hosts:
        told = {"cpu": host.cpu, "memory_bytes": float(host.memory_bytes)}
        if host.gpu:
            told[GPU + host.gpu.kind] = float(host.gpu.count)
        names += [f"{host.kind}-{number}" for number in range(host.count)]
        kinds += [host.gpu.kind if host.gpu else ""] * host.count
        rows += [[told.get(name, 0.0) for name in resources]] * host.count
    return Servers(names, kinds, np.array(rows, dtype=float).reshape(len(rows), len(resources)))


def divide(
    tables: JobTables, servers: Servers, policy: Allocator, time_limit_s: float, *, mixes: bool = False
) -> tuple[Allotment, Places]:
    """What each job gets, so that its replicas fit on the servers; and where they could run.

    What cannot be placed is not offered again; jobs for which nothing is found get nothing. The bound is that of all
    candidates, placed or not.
    """
    until, problem = time.perf_counter() + time_limit_s, tables.problem
    first = answer = policy(problem, time_limit_s)
    for number in range(ROUNDS):
        if number:
            answer = policy(problem, max(until - time.perf_counter(), 0.0))
        places, unplaced = _placed(tables, answer.choice, servers, mixes)
        if not unplaced:
            break
        if number < ROUNDS - 1 and time.perf_counter() < until:
            problem = _without(problem, answer.choice, unplaced)
        else:
            break
    choice = answer.choice.copy()
    if unplaced:
        choice[unplaced] = 0
        notes = (*answer.notes, f"{len(unplaced)} jobs wait since their replicas do not fit on the servers as they are")
        answer = replace(answer, notes=notes)
    return _proved(tables.problem, first, choice, answer), places


def _placed(tables: JobTables, choice: Ints, servers: Servers, mixes: bool) -> tuple[Places, list[int]]:
    """Where replicas go, the largest jobs first; and the jobs that did not find room."""
    placement, problem = Placement(servers, mixes=mixes), tables.problem
    places, unplaced = Places(), list[int]()
    share = problem.share[np.arange(len(choice)), choice]
    for job in map(int, np.argsort(-share, kind="stable")):
        allocation = tables.allocation(job, int(choice[job]))
        if allocation is None:
            continue
        groups = [(role, group) for role, group in allocation.groups if group.replicas]
        name = str(job)
        if placement.place(name, [_replicas(group, problem) for _, group in groups]):
            places[job] = [(role, held) for (role, _), (_, held) in zip(groups, placement.of(name), strict=True)]
        else:
            unplaced.append(job)
    return places, unplaced


def _replicas(group: Group, problem: Problem) -> Replicas:
    one = {"cpu": group.cpu, "memory_bytes": float(group.memory_bytes)}
    if group.gpu:
        one[GPU + group.gpu.kind] = float(group.gpu.count)
    return Replicas(group.replicas, np.array([one.get(name, 0.0) for name in problem.resources]))


def _without(problem: Problem, choice: Ints, jobs: list[int]) -> Problem:
    offered = problem.offered.copy()
    offered[jobs, choice[jobs]] = False
    offered[jobs, 0] |= ~offered[jobs, 1:].any(axis=1)
    return replace(problem, offered=offered)


def _proved(problem: Problem, first: Allotment, choice: Ints, answer: Allotment) -> Allotment:
    """The choice by the values, the bound and the prices that were found before anything was placed; by the problem's
    values where the policy has no bound, or one that is of some candidates only."""
    counted, bound, prices = problem, first.bound, first.prices
    if bound is not None and np.isfinite(first.worth[problem.offered]).all():
        values = np.where(problem.offered, first.worth, 0.0)
        counted = replace(problem, values=values, change_price=np.zeros(len(choice)))
    else:
        bound = prices = None
    if bound is None or prices is None:
        found = prices_of(counted, float("inf"))
        bound, prices = found.bound if bound is None else bound, found.each
    value = counted.total(choice)
    return replace(answer, choice=choice, worth=counted.worth, value=value, bound=max(bound, value), prices=prices)
