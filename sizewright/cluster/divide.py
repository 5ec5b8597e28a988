"""One capacity divided over jobs that run on servers: the allocator chooses, placement tells what can be had."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators._dual import prices_of
from sizewright.cluster.allotment import Allotment
from sizewright.cluster.placement import Held, Placement, Replicas, Servers
from sizewright.cluster.problem import ROUNDING, Floats, Ints, Problem
from sizewright.cluster.tables import GPU, JobTables
from sizewright.errors import InputError
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

    What cannot be placed is not offered again; jobs for which nothing is found get nothing. Room that is left on the
    servers goes to whom it is worth most, where the policy goes by worth. The bound is that of all candidates, placed
    or not.
    """
    began, problem = time.perf_counter(), tables.problem
    until = began + time_limit_s
    first = answer = policy(problem, time_limit_s)
    worth, rows = _counted(first), np.arange(len(problem.jobs))
    found = list[tuple[Ints, Placement, int]]()
    for _ in range(ROUNDS):
        choice, placement, unplaced = _placed(tables, answer.choice, servers, mixes)
        if first.bound is not None:
            choice = _filled(tables, problem, worth, choice, placement, until)
        found.append((choice, placement, sum(choice[job] == 0 for job in unplaced)))
        if not unplaced or time.perf_counter() > until:
            break
        problem = _without(problem, answer.choice, unplaced)
        answer = policy(problem, max(until - time.perf_counter(), 0.0))
    choice, placement, waiting = max(found, key=lambda each: worth[rows, each[0]].sum())
    if waiting:
        many = "1 job waits since its replicas do" if waiting == 1 else f"{waiting} jobs wait since their replicas do"
        answer = replace(answer, notes=(*answer.notes, f"{many} not fit on the servers as they are"))
    released = {*answer.released, *map(int, np.flatnonzero((choice == 0) & ~tables.problem.offered[:, 0]))}
    answer = replace(
        answer, released=tuple(sorted(released)), full=first.bound is not None and time.perf_counter() < until
    )
    answer = replace(answer, seconds=time.perf_counter() - began)
    return _proved(tables.problem, first, choice, answer), _places(tables, choice, placement)


def _placed(tables: JobTables, choice: Ints, servers: Servers, mixes: bool) -> tuple[Ints, Placement, list[int]]:
    """What can be placed of a choice (J,), and the jobs that did not find room for it.

    Jobs stay where they are; those that may not wait are placed first, then what shrinks, then the largest.
    """
    placement, problem = _held(tables, servers, mixes), tables.problem
    choice, unplaced, rows = choice.copy(), list[int](), np.arange(len(choice))
    share, before = problem.share[rows, choice], problem.share[rows, problem.current]
    for job in np.flatnonzero(choice == 0):
        placement.remove(str(job))
    for job in sorted(
        np.flatnonzero(choice), key=lambda j: (problem.offered[j, 0], share[j] > before[j] > 0, -share[j])
    ):
        tried = [choice[job], *_kept(problem, int(job))]
        found = next((int(k) for k in tried if placement.place(str(job), _groups(tables, int(job), int(k)))), 0)
        if found != choice[job]:
            unplaced.append(int(job))
        choice[job] = found
    return choice, placement, unplaced


def _kept(problem: Problem, job: int) -> list[int]:
    """What a job that runs goes on with where it cannot have more."""
    now, stays = int(problem.current[job]), not problem.offered[job, 0]
    least = [int(problem.least[job])] if stays else []
    return [k for k in (now, *least) if k and problem.offered[job, k]]


def _held(tables: JobTables, servers: Servers, mixes: bool) -> Placement:
    """Servers with the jobs on them that are known to be there.

    Raises InputError for servers that there are not.
    """
    placement, number = Placement(servers, mixes=mixes), {name: i for i, name in enumerate(servers.names)}
    for job, held in enumerate(tables.held):
        if missing := sorted(set(held) - set(number)):
            raise InputError(
                f"{tables.problem.jobs[job]} is said to be on {missing[0]}, and the cluster has no such server.",
                f"Servers are named like {servers.names[0]}." if servers.names else "Give the cluster servers.",
            )
        roles = _roles(tables, job, int(tables.problem.current[job]))
        where = [{number[name]: on[role] for name, on in held.items() if on.get(role)} for role, _ in roles]
        if roles and all(sum(on.values()) == group.replicas for on, (_, group) in zip(where, roles, strict=True)):
            placement.hold(
                str(job), [(_replicas(group, tables.problem), on) for (_, group), on in zip(roles, where, strict=True)]
            )
    return placement


def _filled(
    tables: JobTables, problem: Problem, worth: Floats, choice: Ints, placement: Placement, until: float
) -> Ints:
    """(J,): `choice`, with candidates of more worth (J, K) while they can be placed, what gains most for its share
    first."""
    choice, open_, rows = choice.copy(), problem.offered.copy(), np.arange(len(choice))
    open_[:, 0] = False
    while time.perf_counter() < until:
        gain = worth - worth[rows, choice][:, None]
        more = problem.needs - problem.needs[rows, choice][:, None]
        slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
        open_ &= (gain > 0) & (more <= slack).all(axis=2)
        if not open_.any():
            break
        grows = np.maximum(problem.share - problem.share[rows, choice][:, None], 1e-12)
        job, column = map(int, np.unravel_index(np.where(open_, gain / grows, -np.inf).argmax(), gain.shape))
        if placement.place(str(job), _groups(tables, job, column)):
            choice[job] = column
        open_[job, column] = False
    return choice


def _groups(tables: JobTables, job: int, column: int) -> list[Replicas]:
    return [_replicas(group, tables.problem) for _, group in _roles(tables, job, column)]


def _roles(tables: JobTables, job: int, column: int) -> list[tuple[Role, Group]]:
    allocation = tables.allocation(job, column)
    return [(role, group) for role, group in allocation.groups if group.replicas] if allocation else []


def _places(tables: JobTables, choice: Ints, placement: Placement) -> Places:
    return {
        job: [(role, held) for (role, _), (_, held) in zip(
            _roles(tables, job, int(choice[job])), placement.of(str(job)), strict=True
        )]
        for job in map(int, np.flatnonzero(choice))
    }  # fmt: skip


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


def _counted(first: Allotment) -> Floats:
    """(J, K): worth, that of putting off a job which may not wait being much less than any other."""
    return np.where(np.isfinite(first.worth), first.worth, -1e9 * (1.0 + abs(first.value)))


def _proved(problem: Problem, first: Allotment, choice: Ints, answer: Allotment) -> Allotment:
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
    return replace(answer, choice=choice, worth=counted.worth, value=value, bound=max(bound, value), prices=prices)
