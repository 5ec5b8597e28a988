"""A choice of candidates laid out on servers: who is placed first, what is tried instead, what room is left."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from sizewright.cluster.allotment import Allotment
from sizewright.cluster.candidates import GPU
from sizewright.cluster.placement import Held, Placement, Replicas, Servers, below
from sizewright.cluster.problem import ROUNDING, Floats, Ints, Problem
from sizewright.cluster.tables import JobTables
from sizewright.errors import InputError
from sizewright.spec import Group, Role

Places = dict[int, list[tuple[Role, Held]]]
"""By job, the servers of its groups."""


@dataclass
class Layout:
    """Columns (J,), all of them placed."""

    choice: Ints
    placement: Placement
    unplaced: list[int] = field(default_factory=list)
    """Jobs that found no room for what was chosen."""
    late: bool = False
    """Whether time ran out before all room was given away."""

    def total(self, worth: Floats) -> float:
        """Of a worth (J, K)."""
        return float(worth[np.arange(len(self.choice)), self.choice].sum())


def laid_out(
    tables: JobTables, choice: Ints, placement: Placement, worth: Floats | None = None, *, by_worth: bool = False
) -> Layout:
    """What can be placed of a choice (J,), where running jobs are placed already.

    Jobs stay where they are; those that may not wait are placed first, then what shrinks, then the largest, or, with
    `by_worth`, what is worth most for its share. What finds no room gets what is worth most of its smaller candidates;
    without `worth` (J, K), what it has now.
    """
    problem, rows, made = tables.problem, np.arange(len(choice)), Layout(choice.copy(), placement)
    share, before = problem.share[rows, choice], problem.share[rows, problem.current]
    first = -share
    if worth is not None and by_worth:
        first = -worth[rows, choice] / np.maximum(share, 1e-12)
    for job in map(int, np.flatnonzero(choice == 0)):
        placement.remove(str(job))
    for job in sorted(
        map(int, np.flatnonzero(choice)), key=lambda j: (problem.offered[j, 0], share[j] > before[j] > 0, first[j])
    ):
        tried = _tried(problem, job, int(choice[job]), worth)
        found = next((k for k in tried if _placed(tables, placement, job, k)), 0)
        if found != choice[job]:
            made.choice[job] = found
            made.unplaced.append(job)
        if not found:
            placement.remove(str(job))
    return made


def _placed(tables: JobTables, placement: Placement, job: int, column: int) -> bool:
    if column == tables.problem.current[job] and placement.of(str(job)):
        return True  # it stays
    return placement.place(str(job), groups_of(tables, job, column))


def _tried(problem: Problem, job: int, column: int, worth: Floats | None) -> list[int]:
    """A column, and what a job gets where there is no room for that: what it has; its least, where it may not wait; any
    that is smaller, where the policy goes by `worth`."""
    now, stays = int(problem.current[job]), not problem.offered[job, 0]
    least = [int(problem.least[job])] if stays else []
    kept = [k for k in (now, *least) if k and problem.offered[job, k]]
    if worth is None:
        return [column, *kept]
    smaller = {*below(problem.needs[job], worth[job], column, 0), *kept}
    return [column, *sorted(smaller, key=lambda k: -worth[job, k])]


def filled(tables: JobTables, layout: Layout, worth: Floats, until: float) -> None:
    """Candidates of more worth (J, K) while they can be placed, what gains most for its share first. Goes through all
    of them once, whatever the time."""
    problem, choice, rows = tables.problem, layout.choice, np.arange(len(layout.choice))
    open_ = problem.offered & (np.arange(problem.shape[1]) > 0)
    while True:
        gain = worth - worth[rows, choice][:, None]
        grows = np.maximum(problem.share - problem.share[rows, choice][:, None], 1e-12)
        slack = problem.capacity * (1 + ROUNDING) - problem.used(choice)
        open_ &= (gain > 0) & (problem.needs - problem.needs[rows, choice][:, None] <= slack).all(axis=2)
        order = np.argsort(-np.where(open_, gain / grows, -np.inf), axis=None, kind="stable")[: open_.sum()]
        grown = set[int]()
        for job, column in zip(*map(np.ndarray.tolist, np.unravel_index(order, open_.shape)), strict=True):
            more = problem.needs[job, column] - problem.needs[job, choice[job]]
            if job in grown or (more > slack).any():
                continue
            open_[job, column] = False
            if layout.placement.place(str(job), groups_of(tables, job, column)):
                choice[job], slack = column, slack - more
                grown.add(job)
        layout.late = bool(grown) and time.perf_counter() > until
        if layout.late or not grown:
            return


def spare(tables: JobTables, answer: Allotment, placement: Placement) -> frozenset[int]:
    """Jobs for whose next candidate there is room on the servers, beside all that is placed."""
    problem, found = tables.problem, set[int]()
    slack = problem.capacity * (1 + ROUNDING) - problem.used(answer.choice)
    for job in range(len(answer.choice)):
        ahead = answer.ahead(problem, job)
        more = problem.needs[job, ahead] - problem.needs[job, answer.choice[job]]
        if ahead and (more <= slack).all() and placement.fits(str(job), groups_of(tables, job, ahead)):
            found.add(job)
    return frozenset(found)


def held(tables: JobTables, servers: Servers, *, mixes: bool) -> Placement:
    """Servers with the running jobs that are said to be on them.

    Raises InputError for servers that there are not, that hold other replicas than a job has, or that have no room for
    all of them.
    """
    placement, number = Placement(servers, mixes=mixes), {name: i for i, name in enumerate(servers.names)}
    for job, told in enumerate(tables.held):
        name, roles = tables.problem.jobs[job], _roles(tables, job, int(tables.problem.current[job]))
        if missing := sorted(set(told) - set(number)):
            raise InputError(
                f"{name} is said to be on {missing[0]}, and the cluster has no such server.",
                f"Servers are named like {servers.names[0]}." if servers.names else "Give the cluster servers.",
            )
        there, has = Counter[str](), Counter[str]()
        for on in told.values():
            there.update(on)
        for role, group in roles:
            has[role] += group.replicas
        if told and +there != has:
            raise InputError(
                f"{name} is said to have {_counted(there)} on its servers, and {_counted(has)} in all.",
                "Correct its `servers` or its `current`, or leave out `servers`.",
            )
        if not told or len(has) < len(roles):  # of several groups of a role nothing says which is where
            continue
        where = [{number[server]: on[role] for server, on in told.items() if on.get(role)} for role, _ in roles]
        if not placement.hold(
            str(job), [(_replicas(group, tables.problem), on) for (_, group), on in zip(roles, where, strict=True)]
        ):
            raise InputError(
                f"{name} is said to be on {', '.join(sorted(told))}, where there is no room for it beside the others.",
                "Correct the `servers` of the jobs, or leave them out.",
            )
    return placement


def _counted(replicas: Counter[str]) -> str:
    return ", ".join(f"{count} {role}" for role, count in sorted(replicas.items())) or "nothing"


def places_of(tables: JobTables, layout: Layout) -> Places:
    """Where the jobs of a layout are."""
    return {
        job: [(role, where) for (role, _), (_, where) in zip(
            _roles(tables, job, int(layout.choice[job])), layout.placement.of(str(job)), strict=True
        )]
        for job in map(int, np.flatnonzero(layout.choice))
    }  # fmt: skip


def groups_of(tables: JobTables, job: int, column: int) -> list[Replicas]:
    """The groups of a candidate, one after the other."""
    return [_replicas(group, tables.problem) for _, group in _roles(tables, job, column)]


def _roles(tables: JobTables, job: int, column: int) -> list[tuple[Role, Group]]:
    allocation = tables.allocation(job, column)
    return [(role, group) for role, group in allocation.groups if group.replicas] if allocation else []


def _replicas(group: Group, problem: Problem) -> Replicas:
    one = {"cpu": group.cpu, "memory_bytes": float(group.memory_bytes)}
    if group.gpu:
        one[GPU + group.gpu.kind] = float(group.gpu.count)
    return Replicas(group.replicas, np.array([one.get(name, 0.0) for name in problem.resources]))
