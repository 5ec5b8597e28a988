"""From what each job could have to the plain arrays of the allocation problem, and what was left out on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import ROUNDING, Floats, Problem
from sizewright.cluster.values import completion_saved, progress
from sizewright.errors import InputError
from sizewright.spec import ROLES, Allocation, Candidate, Gpu, Group, LeftOut
from sizewright.spec.units import format_bytes

VALUES = ("progress", "completion", "own")
GPU = "gpu:"
"""Before the kind in the names of resources."""


@dataclass(frozen=True)
class JobTable:
    """What one job could have, and how it stands; from a recommendation, a throughput model or a table."""

    name: str
    candidates: tuple[Candidate, ...]
    samples_left: float
    samples: float
    current: Allocation | None = None
    requested: Allocation | None = None
    """Its recommendation's target, or what its user asked for."""
    arrived_s: float = 0.0
    ran_s: float | None = None
    """So far; None: as long as the samples that are done take at its present speed."""
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    """Replicas by role, by the name of the server that they are on."""
    restart_s: float = 90.0
    change_price: float = 0.0
    may_wait: bool = True
    fixed: str = ""
    """Why nothing is told of it but what it has now, its only candidate, with which it goes on."""


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


def needs_of(allocation: Allocation, resources: Sequence[str]) -> Floats:
    """(R,) of a whole allocation, for resources such as `cpu`, `memory_bytes` and `gpu:a100`."""
    totals = {"cpu": allocation.cores(), "memory_bytes": float(allocation.memory_bytes())}
    for _, group in allocation.groups:
        if group.gpu:
            name = GPU + group.gpu.kind
            totals[name] = totals.get(name, 0.0) + group.gpu.count * group.replicas
    return np.array([totals.get(name, 0.0) for name in resources])


@dataclass(frozen=True)
class _Limits:
    """What can be had."""

    resources: Sequence[str]
    capacity: Floats
    most: Floats
    servers: Floats | None
    values: str
    mixes: bool


def tables_of(
    jobs: Sequence[JobTable], resources: Sequence[str], capacity: Floats, most: Floats, *, values: str = "progress",
    window_s: float = 900.0, servers: Floats | None = None, mixes: bool = True,
) -> JobTables:  # fmt: skip
    """The problem of these jobs. `capacity` (R,) is shared; `most` (R,) may be had by one job, one of the `servers`
    (S, R) has to have room for a replica; `mixes` lets it have GPUs of several kinds.

    What runs already may exceed `most`. Jobs without any candidate, of a name that is there already, or whose every
    candidate is too large are left out, as are candidates without speed, with a negative value, or of GPUs that are
    not there. Raises InputError where the values are to be the user's own and a job has none.
    """
    if values not in VALUES:
        raise InputError(f"There are no values '{values}'.", f"Known: {', '.join(VALUES)}.")
    if not (np.isfinite(window_s) and window_s > 0):
        raise InputError(f"A window of {window_s:g} s tells nothing.", "Give some seconds.")
    limits = _Limits(resources, capacity, np.minimum(capacity, most), servers, values, mixes)
    kept, left_out = list[JobTable](), list[LeftOut]()
    for job in jobs:
        told, why = _checked(job, {each.name for each in kept}, limits)
        left_out += [LeftOut(job=job.name, what=what, why=reason) for what, reason in why]
        if told is not None:
            kept.append(told)
    problem = _problem(kept, resources, capacity, values, window_s)
    columns = {name: tuple(getattr(job, name) for job in kept) for name in ("candidates", "held", "fixed")}
    return JobTables(problem, **columns, left_out=tuple(left_out))


def _checked(job: JobTable, names: set[str], limits: _Limits) -> tuple[JobTable | None, list[tuple[str, str]]]:
    """The job with what can be considered of it, and what cannot and why."""
    if job.name in names:
        return None, [("the job", "another one has its name")]
    if not job.candidates:
        return None, [("the job", "it brings no candidates")]
    if job.fixed:
        return job, []
    if limits.values == "own" and any(each.value is None for each in job.candidates):
        raise InputError(f"A candidate of {job.name} has no value of your own.", "Give each a `value`.")
    every = tuple(one for each in _with_current(job) for one in _of_each_kind(each, limits.resources))
    faults = [_fault(each, limits, runs=each.allocation == job.current) for each in every]
    why = [(each.allocation.describe(), fault) for each, fault in zip(every, faults, strict=True) if fault]
    good = tuple(each for each, fault in zip(every, faults, strict=True) if not fault)
    if not good:
        return None, [("the job", f"none of its {len(why)} candidates can be had: {why[0][1]} ({why[0][0]})")]
    return replace(job, candidates=good), why


def _with_current(job: JobTable) -> tuple[Candidate, ...]:
    """What it has now is a candidate: as fast as the fastest that needs no more, where its speed is not told."""
    if job.current is None or any(each.allocation == job.current for each in job.candidates):
        return job.candidates
    sizes = ("cpu", "memory_bytes")
    now = needs_of(job.current, sizes)
    smaller = [c for c in job.candidates if (needs_of(c.allocation, sizes) <= now * (1 + ROUNDING)).all()]
    best = max(smaller or job.candidates[:1], key=lambda each: each.throughput)
    return (*job.candidates, best.model_copy(update={"allocation": job.current}))


def _of_each_kind(each: Candidate, resources: Sequence[str]) -> list[Candidate]:
    """GPUs of no kind in particular are had of any kind that is there."""
    any_kind = Gpu(count=1).kind
    groups = [group for _, group in each.allocation.groups if group.gpu and group.gpu.kind == any_kind]
    if not groups or GPU + any_kind in resources:
        return [each]
    kinds = [name.removeprefix(GPU) for name in resources if name.startswith(GPU)]
    return [each.model_copy(update={"allocation": with_kind(each.allocation, any_kind, kind)}) for kind in kinds] or [
        each
    ]


def with_kind(allocation: Allocation, before: str, kind: str) -> Allocation:
    """The same with GPUs of `kind` where it had those of kind `before`."""
    told: dict[str, tuple[Group, ...]] = {
        role: tuple(
            g.model_copy(update={"gpu": g.gpu.model_copy(update={"kind": kind})})
            if g.gpu and g.gpu.kind == before else g
            for g in getattr(allocation, role)
        )
        for role in ROLES
    }  # fmt: skip
    return allocation.model_copy(update=told)


def _fault(each: Candidate, limits: _Limits, *, runs: bool) -> str | None:
    """Why a candidate cannot be had."""
    resources, most = limits.resources, limits.capacity if runs else limits.most
    kinds = {GPU + group.gpu.kind for _, group in each.allocation.groups if group.gpu}
    if missing := kinds - set(resources):
        return f"the cluster has no GPUs of kind {sorted(missing)[0].removeprefix(GPU)}"
    if len(kinds) > 1 and not limits.mixes:
        return "it has GPUs of several kinds, which is not allowed: --mix-gpus"
    if each.throughput <= 0:
        return "it trains nothing"
    if limits.values == "own" and each.value is not None and each.value < 0:
        return f"its value is negative ({each.value:g})"
    for name, wanted, there in zip(resources, needs_of(each.allocation, resources), most, strict=True):
        if wanted > there * (1 + ROUNDING):
            return f"it needs {_told(name, wanted)}, and a job can have {amount(name, there)}"
    if limits.servers is None:
        return None
    for _, group in each.allocation.groups:
        need = needs_of(Allocation(worker=(group.model_copy(update={"replicas": 1}),), batch_size=1), resources)
        if not (need <= limits.servers * (1 + ROUNDING)).all(axis=1).any():
            return f"no server has room for one of its replicas of {group.cpu:g} cores"
    return None


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


def named(resource: str) -> str:
    """As a sentence says it."""
    if resource.startswith(GPU):
        return f"GPUs ({resource.removeprefix(GPU)})"
    return {"cpu": "cores", "memory_bytes": "memory"}.get(resource, resource)


def _told(resource: str, value: float) -> str:
    """`4 cores`, `2.0 GiB of memory`."""
    return f"{amount(resource, value)} {'of ' if resource == 'memory_bytes' else ''}{named(resource)}"


def amount(resource: str, value: float) -> str:
    """`16.0 GiB` for memory, else a plain number."""
    return format_bytes(value) if resource == "memory_bytes" else f"{value:g}"
