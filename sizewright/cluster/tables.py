"""From what each job could have to the plain arrays of the allocation problem, and what was left out on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sizewright.cluster.candidates import JobTable, Limits, considered, needs_of
from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import Floats, Problem
from sizewright.cluster.values import completion_saved, progress
from sizewright.errors import InputError
from sizewright.spec import Allocation, Candidate, LeftOut

VALUES = ("progress", "completion", "own")


@dataclass(frozen=True)
class JobTables:
    """A problem, the candidates behind its columns, and what is in none."""

    problem: Problem
    candidates: tuple[tuple[Candidate, ...], ...]
    """By job, those of columns 1, 2, …"""
    held: tuple[dict[str, dict[str, int]], ...]
    """By job, where the replicas of what it has now are."""
    fixed: tuple[str, ...]
    """By job, why it goes on with what it has; empty for the others."""
    left_out: tuple[LeftOut, ...]

    def allocation(self, job: int, column: int) -> Allocation | None:
        """None for nothing."""
        return self.candidates[job][column - 1].allocation if column else None


def tables_of(
    jobs: Sequence[JobTable], resources: Sequence[str], capacity: Floats, most: Floats, *, values: str = "progress",
    window_s: float = 900.0, servers: Floats | None = None, mixes: bool = True,
) -> JobTables:  # fmt: skip
    """The problem of these jobs. `capacity` (R,) is shared; `most` (R,) may be had by one job, one of the `servers`
    (S, R) has to have room for a replica; `mixes` lets it have GPUs of several kinds.

    What runs already may exceed `most`. Candidates that are too large, without speed, with a negative value, or of GPUs
    that are not there are left out, as are jobs that have no others, or a name that is there already. A job that runs
    holds what it has: where nothing else can be considered it goes on with that. Raises InputError where the values are
    to be the user's own and a job has none, and where two jobs of one name run.
    """
    if values not in VALUES:
        raise InputError(f"There are no values '{values}'.", f"Known: {', '.join(VALUES)}.")
    if not (np.isfinite(window_s) and window_s > 0):
        raise InputError(f"A window of {window_s:g} s tells nothing.", "Give some seconds.")
    limits = Limits(resources, capacity, np.minimum(capacity, most), servers, values, mixes)
    kept, left_out = list[JobTable](), list[LeftOut]()
    names, running = set[str](), _running(jobs)
    for job in jobs:
        twice = job.name in names or (job.current is None and job.name in running)
        told, why = (None, [("the job", "another one has its name")]) if twice else considered(job, limits)
        left_out += [LeftOut(job=job.name, what=what, why=reason) for what, reason in why]
        if told is not None:
            kept.append(told)
            names.add(job.name)
    problem = _problem(kept, resources, capacity, values, window_s)
    columns = {name: tuple(getattr(job, name) for job in kept) for name in ("candidates", "held", "fixed")}
    return JobTables(problem, **columns, left_out=tuple(left_out))


def _running(jobs: Sequence[JobTable]) -> set[str]:
    """Names of the jobs that run."""
    names = [job.name for job in jobs if job.current is not None]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"Two jobs that run are called {twice[0]}.", "Leave one out, or give it a name of its own.")
    return set(names)


def _problem(
    jobs: Sequence[JobTable], resources: Sequence[str], capacity: Floats, values: str, window_s: float
) -> Problem:
    J, K = len(jobs), 1 + max((len(job.candidates) for job in jobs), default=0)
    needs, speed = np.zeros((J, K, len(resources))), np.zeros((J, K))
    own, offered = np.zeros((J, K)), np.zeros((J, K), dtype=bool)
    current, requested = np.zeros(J, dtype=np.intp), np.zeros(J, dtype=np.intp)
    for j, job in enumerate(jobs):
        allocations = [each.allocation for each in job.candidates]
        count = len(allocations)
        needs[j, 1 : count + 1] = [needs_of(each, resources) for each in allocations]
        speed[j, 1 : count + 1] = [each.throughput for each in job.candidates]
        own[j, 1 : count + 1] = [each.value or 0.0 for each in job.candidates]
        offered[j, 1 : count + 1] = True
        current[j] = _index(allocations, job.current)
        requested[j] = _index(allocations, job.requested or job.current)
        offered[j, 0] = not current[j] or (job.may_wait and not job.fixed)
        offered[j, current[j]] &= not job.leaves
    known = {name: np.array([getattr(job, name) for job in jobs]) for name in ("samples", "arrived_s", "change_price")}
    left = np.array([job.samples_left for job in jobs])
    restart_s = np.array([job.restart_s for job in jobs]) * (current > 0)
    work = np.maximum(known["samples"], left)
    now_s = float(known["arrived_s"].max(initial=0.0))
    ran_s = _ran_s(jobs, work - left, speed[np.arange(J), current])
    facts = Facts(
        now_s=now_s, window_s=window_s, speed=speed, remaining=left, work=work,
        arrived_s=known["arrived_s"], started_s=np.where(current > 0, now_s - ran_s, np.nan),
        attained=ran_s * needs[np.arange(J), current, 0], restart_s=restart_s, requested=requested,
    )  # fmt: skip
    problem = Problem(
        [job.name for job in jobs], resources, capacity, needs, own, offered, current, known["change_price"], facts
    )
    return _valued(problem, facts, restart_s, values)


def _ran_s(jobs: Sequence[JobTable], done: Floats, speed: Floats) -> Floats:
    """(J,): seconds; 0 for jobs that wait."""
    told = np.array([np.nan if job.ran_s is None else job.ran_s for job in jobs])
    taken = np.divide(done, speed, out=np.zeros(len(done)), where=speed > 0)
    return np.where(speed > 0, np.where(np.isnan(told), taken, told), 0.0)


def _index(allocations: Sequence[Allocation], one: Allocation | None) -> int:
    return allocations.index(one) + 1 if one in allocations else 0


def _valued(problem: Problem, facts: Facts, restart_s: Floats, values: str) -> Problem:
    """With values and the price of changing as was asked for."""
    if values == "own":
        return problem
    if values == "progress":
        return replace(problem, values=progress(facts, problem.current), change_price=np.zeros(len(restart_s)))
    saved = completion_saved(facts, problem.least)
    saved[:, 1:] += facts.window_s  # against waiting, which puts the end off by a window at least
    return replace(problem, values=saved, change_price=restart_s)
