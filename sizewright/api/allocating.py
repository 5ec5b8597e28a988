"""One capacity divided over many jobs: who gets what, why, and the plan for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sizewright.api._records import ClusterLike, QueueLike, StoreLike, as_record
from sizewright.api.queues import as_queue, tables_in
from sizewright.cluster.allocators import Allocator, allocator_names, get_allocator
from sizewright.cluster.allotment import Allotment
from sizewright.cluster.divide import divide, resources_of, servers_of
from sizewright.cluster.layout import Places
from sizewright.cluster.placement import Servers
from sizewright.cluster.tables import JobTables, tables_of
from sizewright.cluster.why import why
from sizewright.errors import InputError
from sizewright.executors.plan_files import adjust_plan, launch_plan
from sizewright.spec import Cluster, Division, Estimate, Job, Plan, ResourceUse, Share
from sizewright.spec.units import GIB

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike

_UNITS = {"memory_bytes": float(GIB)}


def allocate(
    cluster: ClusterLike,
    jobs: QueueLike,
    *,
    policy: str | Allocator = "default",
    values: str | None = None,
    time_limit_s: float = 10.0,
    window_s: float = 900.0,
    mixes: bool = False,
    store: StoreLike | None = None,
    prior: PriorLike = None,
) -> Division:
    """Divide a cluster over the jobs of a jobs file, or of its record: one plan for each job that gets something.

    `jobs` may be a list as well, of jobs or of dicts with the keys of the file. Where the file names another, a dict
    may hold the record (`job`, `recommendation`), or a data frame (`table`).

    `policy` is a name of `sizewright.cluster.allocators.allocator_names`, or an allocator of your own.
    `values`, for policies that take any: `progress` (share of its work that a job does in the next `window_s` seconds,
    restarts counted), `completion` (seconds saved against its least candidate) or `own` (as the candidates say).
    Absent, a policy goes by its own. Jobs without a recommendation, table or candidates of their own get one from
    their trials in `store`, with `prior`. `mixes`: the replicas of a job may be on several kinds of GPUs.

    Jobs of which nothing tells how fast they are, are left out and named, or go on with what they have. Raises
    InputError for policies that there are not, and JobError, which is one, for files that are not what they should be.
    """
    told = as_record(Cluster, cluster, "cluster")
    queue = as_queue(jobs)
    allocator = get_allocator(policy)
    if values and not allocator.by_value:
        able = [name for name in allocator_names() if get_allocator(name).by_value]
        raise InputError(
            f"{allocator.name} has values of its own.", f"Leave out the values, or take {', '.join(able)}."
        )
    if not time_limit_s > 0:
        raise InputError("A decision needs some time.", "Give a time limit above 0.")
    tables, records, left_out = tables_in(queue, told, store, prior)
    servers, resources = servers_of(told), resources_of(told)
    capacity = servers.capacity.sum(axis=0)
    problem = tables_of(
        tables,
        resources,
        capacity,
        _most(told, resources, capacity),
        values=values or "progress",
        window_s=window_s,
        servers=servers.capacity,
        mixes=mixes,
    )
    if values:  # with facts, `default` makes values of its own
        problem = replace(problem, problem=replace(problem.problem, facts=None))
    answer, places = divide(problem, servers, allocator, time_limit_s, mixes=mixes)
    shares = tuple(_share(problem, answer, job, records, servers, places) for job in range(len(problem.candidates)))
    return Division(
        policy=allocator.name, valued_by=values or _values(problem, answer), value=answer.value, bound=answer.bound,
        gap=_finite(answer.gap), seconds=answer.seconds, resources=_resources(problem, answer), shares=shares,
        left_out=(*left_out, *problem.left_out), notes=answer.notes,
    )  # fmt: skip


def _most(cluster: Cluster, resources: list[str], capacity: np.ndarray) -> np.ndarray:
    """(R,): what one job may have."""
    quota = {"cpu": cluster.quota.cpu, "memory_bytes": cluster.quota.memory_bytes}
    told = [quota.get(name, cluster.quota.gpu) for name in resources]
    return np.array([c if q is None else min(c, float(q)) for c, q in zip(capacity, told, strict=True)])


def _values(tables: JobTables, answer: Allotment) -> str:
    same = np.array_equal(answer.worth, tables.problem.worth)
    return "progress" if same else f"{answer.policy}'s own values"


def _finite(gap: float | None) -> float | None:
    return gap if gap is not None and np.isfinite(gap) else None


def _share(
    tables: JobTables, answer: Allotment, job: int, records: dict[str, Job], servers: Servers, places: Places
) -> Share:
    problem, column = tables.problem, int(answer.choice[job])
    name, current = problem.jobs[job], int(problem.current[job])
    reason = "" if job in answer.released else tables.fixed[job]
    reason = reason or why(tables, answer, job)
    count = int(problem.offered[job, 1:].sum())
    allocation = tables.allocation(job, column)
    if allocation is None:
        return Share(job=name, decision="suspend" if current else "wait", candidates=count, why=reason)
    held: dict[str, dict[str, int]] = {}
    for role, where in places.get(job, []):
        for server, replicas in where.items():
            here = held.setdefault(servers.names[server], {})
            here[role] = here.get(role, 0) + replicas
    plan = _plan(tables, job, column, records[name], reason)
    return Share(
        job=name, decision=plan.kind, allocation=allocation,
        throughput=None if tables.fixed[job] else tables.candidates[job][column - 1].throughput,
        candidates=count, why=reason, servers=held, plan=plan,
    )  # fmt: skip


def _plan(tables: JobTables, job: int, column: int, record: Job, reason: str) -> Plan:
    current, chosen = int(tables.problem.current[job]), tables.candidates[job][column - 1]
    if not current:
        plan = launch_plan(record, chosen.allocation, reason)
    else:
        before = tables.allocation(job, current)
        assert before is not None
        plan = adjust_plan(record, before, chosen.allocation, reason)
        if current == column:
            plan = plan.model_copy(update={"kind": "keep"})
    lower, upper = chosen.interval or (chosen.throughput, chosen.throughput)
    expected = Estimate(value=chosen.throughput, lower=lower, upper=upper)
    return plan.model_copy(update={"expected": expected if chosen.interval else None})


def _resources(tables: JobTables, answer: Allotment) -> tuple[ResourceUse, ...]:
    problem, used = tables.problem, tables.problem.used(answer.choice)
    prices = answer.prices if answer.prices is not None else np.full(len(used), np.nan)
    bring = [
        float(price * _UNITS.get(name, 1.0) / abs(answer.value)) if answer.value and np.isfinite(price) else None
        for name, price in zip(problem.resources, prices, strict=True)
    ]
    return tuple(
        ResourceUse(resource=name, capacity=float(c), used=float(u), next_unit=b)
        for name, c, u, b in zip(problem.resources, problem.capacity, used, bring, strict=True)
    )
