"""Place the chosen candidates of all jobs on servers, in order, and use the room that remains."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from sizewright.cluster.placement.placement import (
    Placement,
    Replicas,
    ReplicasByServer,
    Servers,
    smaller_candidates,
)
from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.problem.problem import ROUNDING, Floats, Ints, Problem
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.tables import JobTables
from sizewright.errors import InputError
from sizewright.spec import Group, Role

Places = dict[int, list[tuple[Role, ReplicasByServer]]]
"""For each job, the servers of its groups."""


@dataclass
class Layout:
    """One column for each job (J,) whose replicas are all placed."""

    choice: Ints
    placement: Placement
    unplaced: list[int] = field(default_factory=list)
    """Jobs whose chosen candidate could not be placed."""
    out_of_time: bool = False
    """True if time ran out before all remaining room was used."""

    def total(self, utilities: Floats) -> float:
        """Return the total of the chosen `utilities` (J, K)."""
        return float(utilities[np.arange(len(self.choice)), self.choice].sum())


def place_choice(
    tables: JobTables,
    choice: Ints,
    placement: Placement,
    utilities: Floats | None = None,
    *,
    by_utility: bool = False,
) -> Layout:
    """Place as much of a choice (J,) as fits; `placement` holds the running jobs and is changed.

    Jobs stay where they are. Jobs that must run are placed first, then those that shrink, then the largest; with
    `by_utility`, those of the highest utility per dominant share. A job whose candidate does not fit gets its best
    smaller candidate by `utilities` (J, K), or without `utilities` what it has now.
    """
    problem = tables.problem
    rows = np.arange(len(choice))
    share = problem.share[rows, choice]
    current_share = problem.share[rows, problem.current]
    priority = -share
    if utilities is not None and by_utility:
        priority = -utilities[rows, choice] / np.maximum(share, 1e-12)
    layout = Layout(choice.copy(), placement)
    for job in map(int, np.flatnonzero(choice == 0)):
        placement.remove(str(job))
    order = sorted(
        map(int, np.flatnonzero(choice)),
        key=lambda j: (problem.offered[j, 0], share[j] > current_share[j] > 0, priority[j]),
    )
    for job in order:
        columns = [int(choice[job]), *_fallback_columns(problem, job, int(choice[job]), utilities)]
        column = next((k for k in columns if _place_candidate(tables, placement, job, k)), 0)
        if column != choice[job]:
            layout.choice[job] = column
            layout.unplaced.append(job)
        if not column:
            placement.remove(str(job))
    return layout


def _place_candidate(tables: JobTables, placement: Placement, job: int, column: int) -> bool:
    if column == tables.problem.current[job] and placement.groups_of(str(job)):
        return True  # it stays where it is
    return placement.place(str(job), _replica_groups(tables, job, column))


def _fallback_columns(problem: Problem, job: int, column: int, utilities: Floats | None) -> list[int]:
    """Return what to try if `column` cannot be placed, in order.

    That is what the job has now, its smallest candidate if it must run, and with `utilities` all smaller candidates.
    """
    current = int(problem.current[job])
    smallest = [] if problem.offered[job, 0] else [int(problem.smallest[job])]
    kept = [k for k in (current, *smallest) if k and problem.offered[job, k]]
    if utilities is None:
        return kept
    smaller = {*smaller_candidates(problem.needs[job], utilities[job], column, 0), *kept}
    return sorted(smaller, key=lambda k: -utilities[job, k])


def upgrade_placed_jobs(tables: JobTables, layout: Layout, utilities: Floats, deadline: float) -> None:
    """Give jobs candidates of higher utility (J, K) while these can be placed, the best gain per share first.

    Each pass goes through all candidates; the first is completed even after the `deadline`.
    """
    problem = tables.problem
    choice = layout.choice
    rows = np.arange(len(choice))
    is_open = problem.offered & (np.arange(problem.shape[1]) > 0)
    while True:
        gain = utilities - utilities[rows, choice][:, None]
        growth = np.maximum(problem.share - problem.share[rows, choice][:, None], 1e-12)
        slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
        is_open &= (gain > 0) & (problem.needs - problem.needs[rows, choice][:, None] <= slack).all(axis=2)
        by_gain = np.argsort(-np.where(is_open, gain / growth, -np.inf), axis=None, kind="stable")
        jobs, columns = np.unravel_index(by_gain[: is_open.sum()], is_open.shape)
        upgraded = set[int]()
        for job, column in zip(jobs.tolist(), columns.tolist(), strict=True):
            more = problem.needs[job, column] - problem.needs[job, choice[job]]
            if job in upgraded or (more > slack).any():
                continue
            is_open[job, column] = False
            if layout.placement.place(str(job), _replica_groups(tables, job, column)):
                choice[job] = column
                slack = slack - more
                upgraded.add(job)
        layout.out_of_time = bool(upgraded) and time.perf_counter() > deadline
        if layout.out_of_time or not upgraded:
            return


def jobs_with_room(tables: JobTables, solution: Solution, placement: Placement) -> frozenset[int]:
    """Return the jobs whose next better candidate would still fit on the servers."""
    problem = tables.problem
    jobs = set[int]()
    slack = problem.capacity * (1 + ROUNDING) - problem.used(solution.choice)
    for job in range(len(solution.choice)):
        ahead = solution.ahead(problem, job)
        more = problem.needs[job, ahead] - problem.needs[job, solution.choice[job]]
        if ahead and (more <= slack).all() and placement.fits(str(job), _replica_groups(tables, job, ahead)):
            jobs.add(job)
    return frozenset(jobs)


def place_running_jobs(tables: JobTables, servers: Servers, *, mixes: bool) -> Placement:
    """Return the servers with the running jobs whose places are known.

    Raises InputError if a job names a server that does not exist, other replicas than it has, or if the jobs do not
    fit on the servers that they name.
    """
    placement = Placement(servers, mixes=mixes)
    index = {name: i for i, name in enumerate(servers.names)}
    for job, replicas_by_server in enumerate(tables.servers):
        name = tables.problem.jobs[job]
        groups = _groups(tables, job, int(tables.problem.current[job]))
        if unknown := sorted(set(replicas_by_server) - set(index)):
            raise InputError(
                f"{name} names the server {unknown[0]}, which the cluster does not have.",
                f"Servers are named like {servers.names[0]}." if servers.names else "Give the cluster servers.",
            )
        on_servers = Counter[str]()
        for by_role in replicas_by_server.values():
            on_servers.update(by_role)
        in_allocation = Counter[str]()
        for role, group in groups:
            in_allocation[role] += group.replicas
        if replicas_by_server and +on_servers != in_allocation:
            raise InputError(
                f"The `servers` of {name} hold {_describe(on_servers)}, but its `current` has "
                f"{_describe(in_allocation)}.",
                "Correct its `servers` or its `current`, or leave out `servers`.",
            )
        if not replicas_by_server or len(in_allocation) < len(groups):
            continue  # of several groups of a role nothing says which is where
        groups_on_servers = []
        for role, group in groups:
            where = {index[server]: on[role] for server, on in replicas_by_server.items() if on.get(role)}
            groups_on_servers.append((_replicas(group, tables.problem), where))
        if not placement.hold(str(job), groups_on_servers):
            raise InputError(
                f"The replicas of {name} do not fit on {', '.join(sorted(replicas_by_server))} with the other jobs "
                "there.",
                "Correct the `servers` of the jobs, or leave them out.",
            )
    return placement


def _describe(replicas: Counter[str]) -> str:
    return ", ".join(f"{count} {role}" for role, count in sorted(replicas.items())) or "nothing"


def places_of(tables: JobTables, layout: Layout) -> Places:
    """Return the role of each group of the jobs of a layout, and its servers."""
    places: Places = {}
    for job in map(int, np.flatnonzero(layout.choice)):
        groups = _groups(tables, job, int(layout.choice[job]))
        placed = layout.placement.groups_of(str(job))
        places[job] = [(role, where) for (role, _), (_, where) in zip(groups, placed, strict=True)]
    return places


def _replica_groups(tables: JobTables, job: int, column: int) -> list[Replicas]:
    """Return the groups of replicas of a candidate."""
    return [_replicas(group, tables.problem) for _, group in _groups(tables, job, column)]


def _groups(tables: JobTables, job: int, column: int) -> list[tuple[Role, Group]]:
    allocation = tables.allocation(job, column)
    return [(role, group) for role, group in allocation.groups if group.replicas] if allocation else []


def _replicas(group: Group, problem: Problem) -> Replicas:
    need = {"cpu": group.cpu, "memory_bytes": float(group.memory_bytes)}
    if group.gpu:
        need[GPU + group.gpu.kind] = float(group.gpu.count)
    return Replicas(group.replicas, np.array([need.get(name, 0.0) for name in problem.resources]))
