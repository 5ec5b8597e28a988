"""Place the chosen candidates of all jobs on servers, in order, and use the room that remains."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sizewright.cluster.placement.parts import Wave, number_of_parts, waves
from sizewright.cluster.placement.placement import (
    Placement,
    Replicas,
    ReplicasByServer,
    Servers,
    smaller_candidates,
)
from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints, Problem
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.tables import JobTables
from sizewright.errors import InputError
from sizewright.spec import Role

ATTEMPTS = ((True, False), (False, False), (False, True))
"""In a cluster of several parts, jobs are tried where they are, in parts with more room, and in larger parts."""
UPGRADES = 16
"""The mean number of upgrades of a pass that are tried in each of several parts."""
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
    stays = choice == 0
    for job in placement.jobs:
        if choice[int(job)] == 0:
            placement.remove(job)
        stays[int(job)] |= choice[int(job)] == problem.current[int(job)]
    special = (problem.needs[rows, choice][:, placement.special] > 0).any(axis=1)
    may_wait, grows = problem.offered[:, 0], (share > current_share) & (current_share > 0)
    for turn in itertools.product((False, True), (True, False), (False, True)):
        jobs = np.flatnonzero(~stays & (may_wait == turn[0]) & (special == turn[1]) & (grows == turn[2]))
        jobs = jobs[np.argsort(priority[jobs], kind="stable")]
        for at_home, joined in ATTEMPTS if placement.parts > 1 else ():
            failed = [np.zeros(0, dtype=np.intp)]
            for wave in _waves(tables, placement, jobs, choice[jobs], at_home=at_home, joined=joined):
                fits = _place_columns(tables, placement, jobs[wave.rows], choice[jobs[wave.rows]], wave)
                failed.append(wave.rows[~fits])
            jobs = jobs[np.sort(np.concatenate(failed))]
        for wave in _waves(tables, placement, jobs, choice[jobs]):
            _place_wave(tables, layout, jobs[wave.rows], wave, utilities)
    return layout


def _waves(
    tables: JobTables,
    placement: Placement,
    jobs: Ints,
    columns: Ints,
    more: Floats | None = None,
    *,
    at_home: bool = True,
    joined: bool = False,
) -> Iterator[Wave]:
    """Yield waves of the rows of `jobs` (n,) and `columns` (n,).

    In a cluster of several parts, a job that is placed goes to the part that it is in if it is to be `at_home`.
    """
    home = np.full(len(tables.problem.jobs), -1)
    if at_home and placement.parts > 1:
        each = np.unique(jobs)
        home[each] = [placement.home(str(job)) for job in each.tolist()]
    return waves(placement, *tables.replicas.of(jobs, columns), home[jobs], more, joined=joined)


def _place_columns(
    tables: JobTables, placement: Placement, jobs: Ints, columns: Ints, wave: Wave, *, dry_run: bool = False
) -> Bools:
    """Place a column of each job (n,) of a wave, and return which of them fit. A job may stay where it is."""
    names = [str(job) for job in jobs.tolist()]
    count, need = tables.replicas.of(jobs, columns)
    if placement.parts > 1:
        return placement.place_each(names, count, need, wave.in_part, wave.parts, dry_run=dry_run)
    groups = [[Replicas(int(c), row) for c, row in zip(*each, strict=True)] for each in zip(count, need, strict=True)]
    return np.array([placement.place(*each, dry_run=dry_run) for each in zip(names, groups, strict=True)], dtype=bool)


def _place_wave(tables: JobTables, layout: Layout, jobs: Ints, wave: Wave, utilities: Floats | None) -> None:
    """Place the chosen columns of jobs (n,), or else what is to be tried in their place."""
    problem, placement, choice = tables.problem, layout.placement, layout.choice
    fits = _place_columns(tables, placement, jobs, choice[jobs], wave)
    failed = np.flatnonzero(~fits)
    layout.unplaced += jobs[failed].tolist()
    options = {i: _fallback_columns(problem, int(jobs[i]), int(choice[jobs[i]]), utilities) for i in failed.tolist()}
    while options:
        for i in [i for i, columns in options.items() if not columns]:
            choice[jobs[i]] = 0
            placement.remove(str(jobs[i]))
            del options[i]
        rows = np.array(list(options), dtype=np.intp)
        columns = np.array([columns.pop(0) for columns in options.values()], dtype=np.intp)
        stays = columns == problem.current[jobs[rows]]
        stays &= np.array([bool(placement.groups_of(str(job))) for job in jobs[rows].tolist()], dtype=bool)
        fits = stays.copy()
        fits[~stays] = _place_columns(tables, placement, jobs[rows[~stays]], columns[~stays], wave.only(rows[~stays]))
        choice[jobs[rows[fits]]] = columns[fits]
        for i in rows[fits].tolist():
            del options[i]


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
        number = int(is_open.sum())
        if layout.placement.parts > 1:
            number = min(number, UPGRADES * layout.placement.parts)
        jobs, columns = np.unravel_index(by_gain[:number], is_open.shape)
        more = problem.needs[jobs, columns] - problem.needs[jobs, choice[jobs]]
        upgraded = np.zeros(len(choice), dtype=bool)
        for wave in _waves(tables, layout.placement, jobs, columns, more):
            wave = wave.only(np.unique(jobs[wave.rows], return_index=True)[1])
            more = (
                problem.needs[jobs[wave.rows], columns[wave.rows]]
                - problem.needs[jobs[wave.rows], choice[jobs[wave.rows]]]
            )
            wave = wave.only(~upgraded[jobs[wave.rows]] & (np.cumsum(more, axis=0) <= slack).all(axis=1))
            job, column = jobs[wave.rows], columns[wave.rows]
            if not len(job):
                continue
            is_open[job, column] = False
            fits = _place_columns(tables, layout.placement, job, column, wave)
            job, column = job[fits], column[fits]
            slack = slack - (problem.needs[job, column] - problem.needs[job, choice[job]]).sum(axis=0)
            choice[job] = column
            upgraded[job] = True
        layout.out_of_time = bool(upgraded.any()) and time.perf_counter() > deadline
        if layout.out_of_time or not upgraded.any():
            return


def jobs_with_room(tables: JobTables, solution: Solution, placement: Placement) -> frozenset[int]:
    """Return the jobs whose next better candidate would still fit on the servers.

    In a cluster of several parts, one part is tried.
    """
    problem = tables.problem
    jobs = np.arange(len(solution.choice))
    ahead = solution.ahead(problem, jobs)
    slack = problem.capacity * (1 + ROUNDING) - problem.used(solution.choice)
    more = problem.needs[jobs, ahead] - problem.needs[jobs, solution.choice]
    jobs = np.flatnonzero((ahead > 0) & (more <= slack).all(axis=1))
    with_room = set[int]()
    for wave in _waves(tables, placement, jobs, ahead[jobs], more[jobs]):
        job = jobs[wave.rows]
        fits = _place_columns(tables, placement, job, ahead[job], wave, dry_run=True)
        with_room.update(job[fits].tolist())
    return frozenset(with_room)


def place_running_jobs(tables: JobTables, servers: Servers, *, mixes: bool) -> Placement:
    """Return the servers with the running jobs whose places are known.

    Raises InputError if a job names a server that does not exist, other replicas than it has, or if the jobs do not
    fit on the servers that they name.
    """
    placement = Placement(servers, mixes=mixes, parts=number_of_parts(len(servers.names)))
    index = {name: i for i, name in enumerate(servers.names)}
    counts, needs = tables.replicas.of(np.arange(len(tables.servers)), tables.problem.current)
    for job, replicas_by_server in enumerate(tables.servers):
        if not replicas_by_server:
            continue
        name = tables.problem.jobs[job]
        current = int(tables.problem.current[job])
        roles = tables.replicas.roles(job, current)
        groups = [Replicas(int(c), row) for c, row in zip(counts[job], needs[job], strict=True) if c]
        if unknown := sorted(server for server in replicas_by_server if server not in index):
            raise InputError(
                f"{name} names the server {unknown[0]}, which the cluster does not have.",
                f"Servers are named like {servers.names[0]}." if servers.names else "Give the cluster servers.",
            )
        on_servers = Counter[str]()
        for by_role in replicas_by_server.values():
            on_servers.update(by_role)
        in_allocation = Counter[str]()
        for role, group in zip(roles, groups, strict=True):
            in_allocation[role] += group.count
        if +on_servers != in_allocation:
            raise InputError(
                f"The `servers` of {name} hold {_describe(on_servers)}, but its `current` has "
                f"{_describe(in_allocation)}.",
                "Correct its `servers` or its `current`, or leave out `servers`.",
            )
        if len(in_allocation) < len(groups):
            continue  # of several groups of a role nothing says which is where
        on = replicas_by_server.items()
        where = [{index[server]: by_role[role] for server, by_role in on if by_role.get(role)} for role in roles]
        if not placement.hold(str(job), list(zip(groups, where, strict=True))):
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
    for job in np.flatnonzero(layout.choice).tolist():
        placed = [where for _, where in layout.placement.groups_of(str(job)) if where]
        places[job] = list(zip(tables.replicas.roles(job, int(layout.choice[job])), placed, strict=True))
    return places
