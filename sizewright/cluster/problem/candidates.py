"""The candidates of one job: which of them can be chosen, and why the others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sizewright.cluster.problem.problem import ROUNDING, Floats
from sizewright.errors import InputError
from sizewright.formatting import format_bytes, format_count
from sizewright.spec import ROLES, Allocation, Candidate, Gpu, Group

GPU = "gpu:"
"""Prefix of the kind in the names of GPU resources."""


@dataclass(frozen=True)
class JobTable:
    """The candidates of one job and its state, from a recommendation, a throughput model or a table."""

    name: str
    candidates: tuple[Candidate, ...]
    samples_left: float
    samples: float
    current: Allocation | None = None
    requested: Allocation | None = None
    """The target of its recommendation, or what its user asked for."""
    arrived_s: float = 0.0
    ran_s: float | None = None
    """Time that the job has run; None: what the samples done so far take at its present speed."""
    servers: dict[str, dict[str, int]] = field(default_factory=dict)
    """The current number of replicas by role, by the name of the server that they are on."""
    restart_s: float = 90.0
    change_price: float = 0.0
    may_wait: bool = True
    kept_because: str = ""
    """The reason why the job keeps its allocation: nothing else can be considered. Empty for other jobs."""
    leaves: bool = False
    """True if the job cannot keep what it has now, which is its last candidate."""


@dataclass(frozen=True)
class CapacityLimits:
    """The capacity, and the limits that candidates must meet."""

    resources: Sequence[str]
    capacity: Floats
    """(R,)."""
    max_per_job: Floats
    """(R,)."""
    servers: Floats | None
    """(S, R): one of the servers must have room for a replica."""
    values: str
    """The kind of values, one of `tables.VALUES`."""
    mixes: bool
    """True if a candidate may have GPUs of several kinds."""


def select_candidates(job: JobTable, limits: CapacityLimits) -> tuple[JobTable | None, list[tuple[str, str]]]:
    """Return the job with the candidates that can be chosen, and what was left out with the reasons.

    The job is None if it does not run and none of its candidates can be chosen.
    """
    if job.current is not None:
        current = _with_gpu_kinds(_current_only(job), limits.resources)
        if len(current) == 1:
            job = replace(job, current=current[0].allocation)
    if job.kept_because:
        return _keep_current(job, job.kept_because), []
    if limits.values == "own" and any(each.value is None for each in job.candidates):
        raise InputError(f"A candidate of {job.name} has no value of your own.", "Give each a `value`.")

    candidates = [one for each in _with_current(job) for one in _with_gpu_kinds(each, limits.resources)]
    valid: list[Candidate] = []
    rejected: list[tuple[str, str]] = []
    for candidate in candidates:
        reason = _rejection(candidate, limits, runs=candidate.allocation == job.current)
        if reason:
            rejected.append((candidate.allocation.describe(), reason))
        else:
            valid.append(candidate)
    if valid and (job.current is None or job.current in [each.allocation for each in valid]):
        return replace(job, candidates=tuple(valid)), rejected
    if valid:
        current_candidate = next((c for c in candidates if c.allocation == job.current), _current_only(job))
        return replace(job, candidates=(*valid, current_candidate), leaves=True), rejected

    reason = "it has no candidates"
    if rejected:
        description, first = rejected[0]
        reason = f"none of its {format_count(len(rejected), 'candidate')} can be used: {first} ({description})"
    if job.current is None or _too_large(job.current, limits, limits.capacity):
        return None, [("the job", reason)]
    others = [each for each in rejected if each[0] != job.current.describe()]
    return _keep_current(job, f"{reason[0].upper()}{reason[1:]}; it keeps its current allocation."), others


def _keep_current(job: JobTable, reason: str) -> JobTable:
    return replace(job, candidates=(_current_only(job),), kept_because=reason)


def _current_only(job: JobTable) -> Candidate:
    """Return the current allocation as a candidate with a placeholder throughput, which no decision depends on."""
    assert job.current is not None
    return Candidate(allocation=job.current, throughput=1e-9)


def _with_current(job: JobTable) -> tuple[Candidate, ...]:
    """Return the candidates with the current allocation.

    If its speed is unknown, it is taken to be as fast as the fastest candidate that needs no more.
    """
    if job.current is None or not job.candidates or job.current in [each.allocation for each in job.candidates]:
        return job.candidates
    resources = ("cpu", "memory_bytes")
    limit = needs_of(job.current, resources) * (1 + ROUNDING)
    smaller = [each for each in job.candidates if (needs_of(each.allocation, resources) <= limit).all()]
    fastest = max(smaller or job.candidates[:1], key=lambda each: each.throughput)
    return (*job.candidates, fastest.model_copy(update={"allocation": job.current}))


def _with_gpu_kinds(candidate: Candidate, resources: Sequence[str]) -> list[Candidate]:
    """Return a candidate once for each kind of GPU in the cluster, if its GPUs are of no particular kind."""
    any_kind = Gpu(count=1).kind
    if GPU + any_kind in resources or GPU + any_kind not in _gpu_resources(candidate.allocation):
        return [candidate]
    kinds = [name.removeprefix(GPU) for name in resources if name.startswith(GPU)]
    if not kinds:
        return [candidate]
    return [
        candidate.model_copy(update={"allocation": with_kind(candidate.allocation, any_kind, kind)}) for kind in kinds
    ]


def with_kind(allocation: Allocation, before: str, kind: str) -> Allocation:
    """Return the allocation with GPUs of `kind` in place of those of kind `before`."""

    def changed(group: Group) -> Group:
        if group.gpu is None or group.gpu.kind != before:
            return group
        return group.model_copy(update={"gpu": group.gpu.model_copy(update={"kind": kind})})

    return allocation.model_copy(update={role: tuple(map(changed, getattr(allocation, role))) for role in ROLES})


def _rejection(candidate: Candidate, limits: CapacityLimits, *, runs: bool) -> str | None:
    """Return why a candidate cannot be chosen; None if it can. One that runs may exceed the limits of one job."""
    reason = _too_large(candidate.allocation, limits, limits.capacity if runs else limits.max_per_job)
    if reason:
        return reason
    if len(_gpu_resources(candidate.allocation)) > 1 and not limits.mixes:
        return "it mixes GPUs of several kinds, which needs --mix-gpus"
    if candidate.throughput <= 0:
        return "its throughput is 0"
    if limits.values == "own" and candidate.value is not None and candidate.value < 0:
        return f"its value is negative ({candidate.value:g})"
    return None


def _too_large(allocation: Allocation, limits: CapacityLimits, available: Floats) -> str | None:
    """Return why an allocation does not fit even alone if a job can use the `available` (R,); None if it fits."""
    resources = limits.resources
    if missing := _gpu_resources(allocation) - set(resources):
        return f"the cluster has no GPUs of kind {sorted(missing)[0].removeprefix(GPU)}"
    for name, need, limit in zip(resources, needs_of(allocation, resources), available, strict=True):
        if need > limit * (1 + ROUNDING):
            of = "of " if name == "memory_bytes" else ""
            needed, maximum = format_amount(name, need), format_amount(name, limit)
            return f"it needs {needed} {of}{resource_label(name)}, and a job can use at most {maximum}"
    if limits.servers is None:
        return None
    for _, group in allocation.groups:
        replica = Allocation(worker=(group.model_copy(update={"replicas": 1}),), batch_size=1)
        fits = needs_of(replica, resources) <= limits.servers * (1 + ROUNDING)
        if not fits.all(axis=1).any():
            return f"no server has room for one of its replicas of {format_count(group.cpu, 'core')}"
    return None


def _gpu_resources(allocation: Allocation) -> set[str]:
    return {GPU + group.gpu.kind for _, group in allocation.groups if group.gpu}


def needs_of(allocation: Allocation, resources: Sequence[str]) -> Floats:
    """Return what an allocation needs (R,) of `resources` such as `cpu`, `memory_bytes` and `gpu:a100`."""
    totals = {"cpu": allocation.cores(), "memory_bytes": float(allocation.memory_bytes())}
    for _, group in allocation.groups:
        if group.gpu:
            name = GPU + group.gpu.kind
            totals[name] = totals.get(name, 0.0) + group.gpu.count * group.replicas
    return np.array([totals.get(name, 0.0) for name in resources])


def resource_label(resource: str) -> str:
    """Return the name of a resource as in a sentence: `cores`, `memory`, `GPUs (a100)`."""
    if resource.startswith(GPU):
        return f"GPUs ({resource.removeprefix(GPU)})"
    return {"cpu": "cores", "memory_bytes": "memory"}.get(resource, resource)


def format_amount(resource: str, value: float) -> str:
    """Return `16.0 GiB` for memory, and a plain number for other resources."""
    return format_bytes(value) if resource == "memory_bytes" else f"{value:g}"
