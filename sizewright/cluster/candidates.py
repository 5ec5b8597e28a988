"""What one job could have: which of its candidates can be considered, and why the others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sizewright.cluster.problem import ROUNDING, Floats
from sizewright.errors import InputError
from sizewright.spec import ROLES, Allocation, Candidate, Gpu, Group
from sizewright.spec.units import format_bytes, format_count

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
    """Why nothing can be considered but what it has now, with which it goes on."""
    leaves: bool = False
    """Whether it cannot go on with what it has now, its last candidate."""


@dataclass(frozen=True)
class Limits:
    """What can be had."""

    resources: Sequence[str]
    capacity: Floats
    most: Floats
    servers: Floats | None
    values: str
    mixes: bool


def considered(job: JobTable, limits: Limits) -> tuple[JobTable | None, list[tuple[str, str]]]:
    """The job with what can be considered of it, and what cannot and why."""
    job = _of_a_kind(job, limits.resources)
    if job.fixed:
        return _as_it_runs(job, job.fixed), []
    if limits.values == "own" and any(each.value is None for each in job.candidates):
        raise InputError(f"A candidate of {job.name} has no value of your own.", "Give each a `value`.")
    every = tuple(one for each in _with_current(job) for one in _of_each_kind(each, limits.resources))
    faults = [_fault(each, limits, runs=each.allocation == job.current) for each in every]
    why = [(each.allocation.describe(), fault) for each, fault in zip(every, faults, strict=True) if fault]
    good = tuple(each for each, fault in zip(every, faults, strict=True) if not fault)
    if good and (job.current is None or job.current in [each.allocation for each in good]):
        return replace(job, candidates=good), why
    if good:
        now = next((each for each in every if each.allocation == job.current), _only(job))
        return replace(job, candidates=(*good, now), leaves=True), why
    none = "it brings no candidates"
    if why:
        none = f"none of its {format_count(len(why), 'candidate')} can be had: {why[0][1]} ({why[0][0]})"
    if job.current is None or _too_large(job.current, limits, limits.capacity):
        return None, [("the job", none)]
    others = [each for each in why if each[0] != job.current.describe()]
    return _as_it_runs(job, f"{none[0].upper()}{none[1:]}; it goes on with what it has."), others


def _as_it_runs(job: JobTable, why: str) -> JobTable:
    return replace(job, candidates=(_only(job),), fixed=why)


def _only(job: JobTable) -> Candidate:
    """What a running job has, as slow as can be: nothing rests on it."""
    assert job.current is not None
    return Candidate(allocation=job.current, throughput=1e-9)


def _with_current(job: JobTable) -> tuple[Candidate, ...]:
    """What it has now is a candidate: as fast as the fastest that needs no more, where its speed is not told."""
    if job.current is None or not job.candidates or job.current in [each.allocation for each in job.candidates]:
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


def _of_a_kind(job: JobTable, resources: Sequence[str]) -> JobTable:
    """A running job's GPUs of no kind in particular are of the one that is there."""
    now = _of_each_kind(_only(job), resources) if job.current else []
    return replace(job, current=now[0].allocation) if len(now) == 1 else job


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


def _fault(each: Candidate, limits: Limits, *, runs: bool) -> str | None:
    """Why a candidate cannot be had."""
    if large := _too_large(each.allocation, limits, limits.capacity if runs else limits.most):
        return large
    if len(_kinds(each.allocation)) > 1 and not limits.mixes:
        return "it has GPUs of several kinds, which is not allowed: --mix-gpus"
    if each.throughput <= 0:
        return "it trains nothing"
    if limits.values == "own" and each.value is not None and each.value < 0:
        return f"its value is negative ({each.value:g})"
    return None


def _too_large(allocation: Allocation, limits: Limits, most: Floats) -> str | None:
    """Why there is no room for it even alone; `most` (R,) may be had."""
    resources = limits.resources
    if missing := _kinds(allocation) - set(resources):
        return f"the cluster has no GPUs of kind {sorted(missing)[0].removeprefix(GPU)}"
    for name, wanted, there in zip(resources, needs_of(allocation, resources), most, strict=True):
        if wanted > there * (1 + ROUNDING):
            return f"it needs {_told(name, wanted)}, and a job can have {amount(name, there)}"
    if limits.servers is None:
        return None
    for _, group in allocation.groups:
        need = needs_of(Allocation(worker=(group.model_copy(update={"replicas": 1}),), batch_size=1), resources)
        if not (need <= limits.servers * (1 + ROUNDING)).all(axis=1).any():
            return f"no server has room for one of its replicas of {format_count(group.cpu, 'core')}"
    return None


def _kinds(allocation: Allocation) -> set[str]:
    return {GPU + group.gpu.kind for _, group in allocation.groups if group.gpu}


def needs_of(allocation: Allocation, resources: Sequence[str]) -> Floats:
    """(R,) of a whole allocation, for resources such as `cpu`, `memory_bytes` and `gpu:a100`."""
    totals = {"cpu": allocation.cores(), "memory_bytes": float(allocation.memory_bytes())}
    for _, group in allocation.groups:
        if group.gpu:
            name = GPU + group.gpu.kind
            totals[name] = totals.get(name, 0.0) + group.gpu.count * group.replicas
    return np.array([totals.get(name, 0.0) for name in resources])


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
