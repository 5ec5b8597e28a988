"""Kinds of GPUs in a simulation: which there are, which one each job requests, and on which it may run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sizewright.cluster.placement.placement import Servers
from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.problem.problem import Bools, Floats, Ints
from sizewright.cluster.simulator.measured_curves import ANY, MeasuredCurve, first_of
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError


@dataclass(frozen=True)
class JobKinds:
    """The kinds of GPUs of N jobs, as indices of the G kinds of a cluster."""

    named: Ints
    """(N,): the kind that the user requested; -1 for any."""
    reference: Ints
    """(N,): the kind on which the job's duration counts."""
    allowed: Bools
    """(N, G): True for the kinds on which the job may run."""


def gpu_kinds(trace: Trace, servers: Servers | None, *, mixes: bool) -> tuple[str, ...]:
    """Return the kinds of GPUs of the servers, or without servers the kinds that jobs request.

    There are none where no job uses GPUs, and if replicas of one job may mix kinds, since GPUs then count as equal.

    Raises InputError if kinds may be mixed and jobs request some.
    """
    requested = {kind for kind in trace.gpu_kinds if kind != ANY}
    if mixes and requested:
        raise InputError(
            f"Jobs request kinds of GPUs, such as {min(requested)}, and kinds that are mixed count as equal.",
            "Leave out --mix-gpus (mixes=True), or the column: --map gpu_kind=.",
        )
    if mixes or "gpu" not in trace.needs:
        return ()
    if servers is None:
        return tuple(sorted(requested))
    return tuple(dict.fromkeys(kind for kind in servers.kinds if kind))


def trace_resources(trace: Trace, kinds: Sequence[str] = ()) -> list[str]:
    """Return the resources of a trace; GPUs of each of several `kinds` are a resource of their own."""
    gpus = [GPU + kind for kind in kinds] if len(kinds) > 1 else ["gpu"]
    by_name = {"gpu": gpus, "cpu": ["cpu"], "memory_bytes": ["memory_bytes"]}
    return [resource for name, resources in by_name.items() if name in trace.needs for resource in resources]


def named_kinds(trace: Trace, kinds: Sequence[str]) -> Ints:
    """Return the index (N,) of the kind that each user requested; -1 for any, and for jobs without GPUs.

    Raises InputError for a job whose kind is not one of `kinds`.
    """
    if not (trace.gpu_kinds and kinds):
        return np.full(len(trace), -1)
    index = {kind: number for number, kind in enumerate(kinds)} | {ANY: -1}
    uses_gpus = trace.needs["gpu"] > 0
    foreign = [
        (kind, job)
        for job, kind, uses in zip(trace.jobs, trace.gpu_kinds, uses_gpus, strict=True)
        if uses and kind not in index
    ]
    if foreign:
        kind = foreign[0][0]
        raise InputError(
            f"Job {first_of([job for each, job in foreign if each == kind])} requests GPUs of kind {kind}, which no "
            "host of the cluster has.",
            f"The hosts have {', '.join(kinds)}: add hosts, or correct gpu_kind.",
        )
    return np.array([index.get(kind, -1) for kind in trace.gpu_kinds]) * uses_gpus - ~uses_gpus


def kinds_of_jobs(trace: Trace, kinds: Sequence[str], curves: Sequence[MeasuredCurve | None]) -> JobKinds:
    """Return the kinds of the jobs of a trace, whose `curves` (N,) are None where they are not measured.

    A job whose speeds are known by kind may run on each kind that its curve has, and another job on the kind that it
    requests. A job that requests no kind may run on any. Its duration counts on the first kind of its curve.

    Raises InputError for a request or a curve of a kind that does not exist.
    """
    N, G = len(trace), max(len(kinds), 1)
    named = named_kinds(trace, kinds)
    uses_gpus = trace.needs["gpu"] > 0 if "gpu" in trace.needs else np.zeros(N, dtype=bool)
    allowed = (np.arange(G) == named[:, None]) | ((named < 0) & uses_gpus)[:, None]
    allowed[~uses_gpus, 0] = True
    reference = np.maximum(named, 0)
    by_case: dict[tuple[int, int], list[int]] = {}
    for row, curve in enumerate(curves):
        if curve is not None and curve.kinds:
            by_case.setdefault((id(curve), int(named[row])), []).append(row)
    for (_, at), rows in by_case.items():
        curve = curves[rows[0]]
        assert curve is not None
        if without := [row for row in rows if not uses_gpus[row]]:
            raise InputError(
                f"Job {trace.jobs[without[0]]} requests no GPUs, but its curve {curve.name} has speeds by their kind.",
                "Give it GPUs, or another curve.",
            )
        kind = curve.request_kind(trace.jobs[rows[0]], kinds[at] if at >= 0 else ANY, kinds)
        reference[rows] = kinds.index(kind)
        allowed[rows] = [curve.has(each) for each in kinds]
    return JobKinds(named, reference, allowed)


def resolve_requests(workload: Workload, live: Ints, current: Ints, capacity: Floats) -> Ints:
    """Return the columns (n,) that the users of the `live` jobs (n,) request, for policies that give nothing else.

    A request for any kind of GPUs means the kind that the job has (`current`), or while it waits, the one with the most
    room beside the running jobs and those that wait for longer.
    """
    requested = workload.requested[live].copy()
    if workload.meets_request is None:
        return requested
    meets = workload.requests(live)
    is_open = meets.sum(axis=1) > 1
    if not is_open.any():
        return requested
    kind = workload.gpu_kind(live)
    for row in map(int, np.flatnonzero(is_open & (current > 0))):
        columns = np.flatnonzero(meets[row])
        requested[row] = columns[(kind[row, columns] != kind[row, current[row]]).argmin()]
    free = capacity - workload.needs[live, current].sum(axis=0)
    for row in map(int, np.flatnonzero(current == 0)):
        columns = np.flatnonzero(meets[row])
        needs = workload.needs[live[row], columns]
        room = np.where(needs > 0, (free - needs) / np.maximum(capacity, 1e-300), np.inf).min(axis=1)
        requested[row] = columns[room.argmax()]
        if room.max() >= 0:
            free = free - needs[room.argmax()]
    return requested
