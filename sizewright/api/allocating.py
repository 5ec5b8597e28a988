"""Allocate the capacity of a cluster to many jobs, with a reason and a plan for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sizewright.api._records import ClusterLike, QueueLike, StoreLike, as_record
from sizewright.api.queues import as_queue, tables_in
from sizewright.cluster.allocators import Allocator, allocator_names, get_allocator
from sizewright.cluster.placement.placement import Servers
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.problem.tables import JobTables
from sizewright.cluster.shared_cluster import Division, SharedCluster
from sizewright.errors import InputError
from sizewright.formatting import GIB
from sizewright.runtime.plan_files import adjust_plan, launch_plan
from sizewright.spec import Cluster, ClusterAllocation, Estimate, Job, Plan, ResourceUse, Share

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
) -> ClusterAllocation:
    """Allocate a cluster to the jobs of a jobs file, or of its record; each job that gets resources gets a plan.

    `jobs` may also be a list of jobs, or of dicts with the keys of the file. Where the file names another file, a dict
    may hold the record (`job`, `recommendation`) or a data frame (`table`).

    `policy` is a name from `sizewright.cluster.allocators.allocator_names`, or your own allocator. `values` selects the
    utility of policies that take any: `progress` (share of its work that a job completes in the next `window_s`
    seconds, restarts included), `completion` (seconds saved relative to its smallest candidate) or `own` (the values of
    the candidates). By default each policy uses its own. Jobs without a recommendation, table or candidates get a
    recommendation from their trials in `store`, with `prior`. With `mixes`, the replicas of a job may run on several
    kinds of GPUs. `time_limit_s` limits the optimisation, in seconds.

    Jobs of unknown speed are left out and named, or keep what they have. Raises InputError for an unknown policy, and
    JobError, a kind of InputError, for invalid files.
    """
    loaded_cluster = as_record(Cluster, cluster, "cluster")
    queue = as_queue(jobs)
    allocator = get_allocator(policy)
    if values and not allocator.by_value:
        policies = [name for name in allocator_names() if get_allocator(name).by_value]
        raise InputError(
            f"The policy {allocator.name} defines its own values.",
            f"Leave out the values, or use one of these policies: {', '.join(policies)}.",
        )
    shared = SharedCluster(
        loaded_cluster, allocator, time_limit_s=time_limit_s, window_s=window_s, values=values, mixes=mixes
    )
    tables, records, left_out = tables_in(queue, loaded_cluster, store, prior)
    division = shared.divide(tables)
    problem, solution = division.tables, division.solution
    shares = tuple(_share(division, job, records, shared.servers) for job in range(len(problem.candidates)))
    return ClusterAllocation(
        policy=allocator.name,
        valued_by=values or _valued_by(problem, solution),
        value=solution.value,
        bound=solution.bound,
        gap=_finite(solution.gap),
        seconds=solution.seconds,
        resources=_resource_use(problem, solution),
        shares=shares,
        left_out=(*left_out, *problem.left_out),
        notes=solution.notes,
    )


def _valued_by(tables: JobTables, solution: Solution) -> str:
    same = np.array_equal(solution.utilities, tables.problem.utilities)
    return "progress" if same else f"{solution.policy}'s own values"


def _finite(gap: float | None) -> float | None:
    return gap if gap is not None and np.isfinite(gap) else None


def _share(division: Division, job: int, records: dict[str, Job], servers: Servers) -> Share:
    tables, problem = division.tables, division.tables.problem
    column, current = int(division.solution.choice[job]), int(problem.current[job])
    name, reason = problem.jobs[job], division.why(job)
    candidates = int(problem.offered[job, 1:].sum())
    allocation = tables.allocation(job, column)
    if allocation is None:
        return Share(job=name, decision="suspend" if current else "wait", candidates=candidates, why=reason)
    replicas_by_server: dict[str, dict[str, int]] = {}
    for role, placement in division.places.get(job, []):
        for server, replicas in placement.items():
            by_role = replicas_by_server.setdefault(servers.names[server], {})
            by_role[role] = by_role.get(role, 0) + replicas
    plan = _plan(tables, job, column, records[name], reason)
    return Share(
        job=name,
        decision=plan.kind,
        allocation=allocation,
        throughput=None if tables.kept_because[job] else tables.candidates[job][column - 1].throughput,
        candidates=candidates,
        why=reason,
        servers=replicas_by_server,
        plan=plan,
    )


def _plan(tables: JobTables, job: int, column: int, record: Job, reason: str) -> Plan:
    current, chosen = int(tables.problem.current[job]), tables.candidates[job][column - 1]
    before = tables.allocation(job, current) if current else None
    if before is None:
        plan = launch_plan(record, chosen.allocation, reason)
    else:
        plan = adjust_plan(record, before, chosen.allocation, reason)
        if current == column:
            plan = plan.model_copy(update={"kind": "keep"})
    expected = None
    if chosen.interval:
        lower, upper = chosen.interval
        expected = Estimate(value=chosen.throughput, lower=lower, upper=upper)
    return plan.model_copy(update={"expected": expected})


def _resource_use(tables: JobTables, solution: Solution) -> tuple[ResourceUse, ...]:
    """Return the use of each resource and what one more core, GiB or GPU adds, as a share of the total value."""
    problem, used = tables.problem, tables.problem.used(solution.choice)
    prices = solution.prices if solution.prices is not None else np.full(len(used), np.nan)
    next_units = [
        float(price * _UNITS.get(name, 1.0) / abs(solution.value)) if solution.value and np.isfinite(price) else None
        for name, price in zip(problem.resources, prices, strict=True)
    ]
    return tuple(
        ResourceUse(resource=name, capacity=float(capacity), used=float(use), next_unit=next_unit)
        for name, capacity, use, next_unit in zip(problem.resources, problem.capacity, used, next_units, strict=True)
    )
