"""Check plans against guard rails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sizewright.errors import InputError
from sizewright.spec import ROLES, Group, Plan, Prices, Rails, Role
from sizewright.spec.objective import allocation_price
from sizewright.spec.rails import RoleRails
from sizewright.spec.units import format_bytes, format_number


def check_rails(plan: Plan, rails: Rails) -> None:
    """Raise InputError that names each field of the plan that violates the guard rails, with its value and limit."""
    if plan.kind == "keep":
        return
    if rails.paused:
        raise InputError(
            f"The guard rails pause all plans, so plan {plan.id} is not applied.", "Apply it when they no longer do."
        )
    if violations := list(_violations(plan, rails)):
        raise InputError(
            f"Plan {plan.id} violates its guard rails: {'; '.join(violations)}.", "Make a plan within the guard rails."
        )


def check_sized(plan: Plan, unsized: Sequence[Role], rails: Rails) -> None:
    """Raise InputError for roles whose manifest requests no cores, where guard rails limit their size."""
    limits_all = rails.quota != Rails().quota or rails.budget is not None
    for role in unsized:
        if limits_all or getattr(rails, role) != RoleRails():
            raise InputError(
                f"Plan {plan.id} has guard rails, but its manifest does not say how many cores {role} requests.",
                f"Write the requests of {role} into the manifest.",
            )


def _violations(plan: Plan, rails: Rails) -> Iterator[str]:
    for role in ROLES:
        yield from _role_violations(plan, rails, role)
    yield from _total_violations(plan, rails)
    priority_class = plan.job.deploy.priority_class
    if priority_class and rails.priority_classes is not None and priority_class not in rails.priority_classes:
        allowed = ", ".join(rails.priority_classes) or "none"
        yield f"job.deploy.priority_class is '{priority_class}' (allowed: {allowed})"


def _role_violations(plan: Plan, rails: Rails, role: Role) -> Iterator[str]:
    rail, count = getattr(rails, role), plan.target.replicas(role)
    if rail.replicas and not rail.replicas[0] <= count <= rail.replicas[1]:
        yield f"{role}.replicas is {count} (allowed: {rail.replicas[0]} to {rail.replicas[1]})"
    groups: tuple[Group, ...] = getattr(plan.target, role)
    for group in groups:
        if rail.cpu and not rail.cpu[0] <= group.cpu <= rail.cpu[1]:
            yield f"{role}.cpu is {group.cpu:g} (allowed: {rail.cpu[0]:g} to {rail.cpu[1]:g})"
        low, high = rail.memory_bytes or (0, 0)
        if rail.memory_bytes and group.replicas and not (group.memory_bytes and low <= group.memory_bytes <= high):
            memory = format_bytes(group.memory_bytes) if group.memory_bytes else "not limited"
            yield f"{role}.memory is {memory} (allowed: {format_bytes(low)} to {format_bytes(high)})"
    if rail.step and plan.kind == "adjust" and plan.current is None:
        yield f"{role}.replicas may change by at most {rail.step}, but the plan names no current allocation (current)"
    if rail.step and plan.current and abs(count - plan.current.replicas(role)) > rail.step:
        current = plan.current.replicas(role)
        yield f"{role}.replicas changes from {current} to {count} (at most {rail.step} per change are allowed)"


def _total_violations(plan: Plan, rails: Rails) -> Iterator[str]:
    quota, target = rails.quota, plan.target
    if quota.cpu is not None and target.cores() > quota.cpu * (1 + 1e-9):
        yield f"the cores of all replicas are {target.cores():g} (quota: {quota.cpu:g})"
    if quota.memory_bytes is not None:
        if any(group.replicas and not group.memory_bytes for _, group in target.groups):
            yield f"memory is not limited (quota: {format_bytes(quota.memory_bytes)})"
        elif target.memory_bytes() > quota.memory_bytes:
            memory = format_bytes(target.memory_bytes())
            yield f"the memory of all replicas is {memory} (quota: {format_bytes(quota.memory_bytes)})"
    if quota.gpu is not None and target.gpus() > quota.gpu:
        yield f"the GPUs of all replicas are {target.gpus()} (quota: {quota.gpu})"
    if rails.budget is not None:
        yield from _budget_violations(plan, rails.budget, rails.prices or plan.job.prices)


def _budget_violations(plan: Plan, budget: float, prices: Prices) -> Iterator[str]:
    if plan.expected is None or not 0 < plan.expected.value < math.inf:
        yield "there is a budget, but the plan has no valid predicted throughput"
        return
    if plan.job.samples is None:
        yield "there is a budget, but the job does not say how many samples it trains (training.samples)"
        return
    hours = plan.job.samples / plan.expected.value / 3600
    cost = hours * allocation_price(plan.target, prices)
    if cost > budget:
        yield f"the predicted cost of all samples is {format_number(cost, 4)} (budget: {format_number(budget, 4)})"
