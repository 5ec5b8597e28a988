"""Build the arrays of the allocation problem from the candidates of jobs, and record what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sizewright.cluster.problem.candidates import CapacityLimits, JobTable, needs_of, select_candidates
from sizewright.cluster.problem.problem import Floats, Problem
from sizewright.cluster.problem.replicas import ReplicaGroups, replica_groups
from sizewright.cluster.problem.scheduler_state import SchedulerState, units_of
from sizewright.cluster.problem.utilities import completion_saved, progress
from sizewright.errors import InputError
from sizewright.spec import Allocation, Candidate, LeftOut

VALUES = ("progress", "completion", "own")


@dataclass(frozen=True)
class JobTables:
    """A problem, the candidates behind its columns, and what is left out."""

    problem: Problem
    candidates: tuple[tuple[Candidate, ...], ...]
    """For each job, the candidates of columns 1, 2, …"""
    replicas: ReplicaGroups
    """The replicas of each column."""
    servers: tuple[dict[str, dict[str, int]], ...]
    """For each job, the servers of its current replicas."""
    kept_because: tuple[str, ...]
    """For each job, why it keeps what it has; empty for the others."""
    left_out: tuple[LeftOut, ...]

    def allocation(self, job: int, column: int) -> Allocation | None:
        """Return the allocation of a column; None for nothing."""
        return self.candidates[job][column - 1].allocation if column else None


def tables_of(
    jobs: Sequence[JobTable],
    resources: Sequence[str],
    capacity: Floats,
    max_per_job: Floats,
    *,
    values: str = "progress",
    window_s: float = 900.0,
    servers: Floats | None = None,
    mixes: bool = True,
) -> JobTables:
    """Return the allocation problem of these jobs.

    The jobs share `capacity` (R,); one job may use `max_per_job` (R,), unless it runs already with more. One of the
    `servers` (S, R) must have room for a replica. `mixes` allows candidates with GPUs of several kinds.

    Candidates are left out if they are too large, have no throughput or a negative value, or need GPUs that the cluster
    lacks. Jobs are left out if no candidate remains or if their name is taken. A running job is never left out: if no
    candidate remains, it keeps what it has.

    Raises InputError if `values` is "own" and a candidate has none, and if two running jobs have the same name.
    """
    if values not in VALUES:
        raise InputError(f"Unknown values '{values}'.", f"Known: {', '.join(VALUES)}.")
    if not (np.isfinite(window_s) and window_s > 0):
        raise InputError(f"The window must be longer than 0 s, got {window_s:g}.", "Give some seconds.")
    running = Counter(job.name for job in jobs if job.current is not None)
    if twice := [name for name, count in running.items() if count > 1]:
        raise InputError(f"Two running jobs have the name {twice[0]}.", "Rename one of them, or leave it out.")

    limits = CapacityLimits(resources, capacity, np.minimum(capacity, max_per_job), servers, values, mixes)
    kept: list[JobTable] = []
    left_out: list[LeftOut] = []
    taken = set[str]()
    for job in jobs:
        if job.name in taken or (job.current is None and job.name in running):
            left_out.append(LeftOut(job=job.name, what="the job", why="another job has the same name"))
            continue
        selected, reasons = select_candidates(job, limits)
        left_out += [LeftOut(job=job.name, what=what, why=reason) for what, reason in reasons]
        if selected is not None:
            kept.append(selected)
            taken.add(job.name)
    return JobTables(
        problem=_problem(kept, resources, capacity, values, window_s),
        candidates=tuple(job.candidates for job in kept),
        replicas=replica_groups([job.candidates for job in kept], resources),
        servers=tuple(job.servers for job in kept),
        kept_because=tuple(job.kept_because for job in kept),
        left_out=tuple(left_out),
    )


def _problem(
    jobs: Sequence[JobTable], resources: Sequence[str], capacity: Floats, values: str, window_s: float
) -> Problem:
    J = len(jobs)
    K = 1 + max((len(job.candidates) for job in jobs), default=0)
    needs = np.zeros((J, K, len(resources)))
    speed = np.zeros((J, K))
    own_values = np.zeros((J, K))
    offered = np.zeros((J, K), dtype=bool)
    current = np.zeros(J, dtype=np.intp)
    requested = np.zeros(J, dtype=np.intp)
    for j, job in enumerate(jobs):
        allocations = [each.allocation for each in job.candidates]
        columns = slice(1, len(allocations) + 1)
        needs[j, columns] = [needs_of(each, resources) for each in allocations]
        speed[j, columns] = [each.throughput for each in job.candidates]
        own_values[j, columns] = [each.value or 0.0 for each in job.candidates]
        offered[j, columns] = True
        current[j] = _column_of(allocations, job.current)
        requested[j] = _column_of(allocations, job.requested or job.current)
        offered[j, 0] = not current[j] or (job.may_wait and not job.kept_because)
        offered[j, current[j]] &= not job.leaves

    rows = np.arange(J)
    remaining = np.array([job.samples_left for job in jobs])
    work = np.maximum(np.array([job.samples for job in jobs]), remaining)
    arrived_s = np.array([job.arrived_s for job in jobs])
    restart_s = np.array([job.restart_s for job in jobs]) * (current > 0)
    now_s = float(arrived_s.max(initial=0.0))
    ran_s = _running_time_s(jobs, work - remaining, speed[rows, current])
    scheduler_state = SchedulerState(
        now_s=now_s,
        window_s=window_s,
        speed=speed,
        remaining=remaining,
        work=work,
        arrived_s=arrived_s,
        started_s=np.where(current > 0, now_s - ran_s, np.nan),
        attained=ran_s * units_of(needs[rows, current], resources),
        restart_s=restart_s,
        requested=requested,
    )
    problem = Problem(
        jobs=[job.name for job in jobs],
        resources=resources,
        capacity=capacity,
        needs=needs,
        values=own_values,
        offered=offered,
        current=current,
        change_price=np.array([job.change_price for job in jobs]),
        scheduler_state=scheduler_state,
    )
    if values == "own":
        return problem
    if values == "progress":
        return replace(problem, values=progress(scheduler_state, current), change_price=np.zeros(J))
    saved = completion_saved(scheduler_state, problem.smallest)
    saved[:, 1:] += window_s  # against waiting, which delays the end by at least a window
    return replace(problem, values=saved, change_price=restart_s)


def _running_time_s(jobs: Sequence[JobTable], done: Floats, speed: Floats) -> Floats:
    """Return how long each job (J,) has run; 0 for jobs that wait."""
    known = np.array([np.nan if job.ran_s is None else job.ran_s for job in jobs])
    estimated = np.divide(done, speed, out=np.zeros(len(done)), where=speed > 0)
    return np.where(speed > 0, np.where(np.isnan(known), estimated, known), 0.0)


def _column_of(allocations: Sequence[Allocation], allocation: Allocation | None) -> int:
    return allocations.index(allocation) + 1 if allocation in allocations else 0
