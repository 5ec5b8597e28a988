"""Holds plans to guard rails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sizewright.errors import InputError
from sizewright.spec import ROLES, Group, Plan, Prices, Rails, Role
from sizewright.spec.objective import allocation_price
from sizewright.spec.rails import RoleRails
from sizewright.spec.units import format_bytes, format_number


def check_rails(plan: Plan, rails: Rails) -> None:
    """Raises InputError that names each field of the plan that is beyond its rail, with value and rail."""
    if plan.kind == "keep":
        return
    if rails.paused:
        raise InputError(f"The guard rails pause all plans; plan {plan.id} waits.", "Apply it when they do not.")
    if beyond := list(_beyond(plan, rails)):
        raise InputError(f"Plan {plan.id} is beyond its guard rails: {'; '.join(beyond)}.", "Make one within them.")


def check_sized(plan: Plan, unsized: Sequence[Role], rails: Rails) -> None:
    """Raises InputError for roles that a manifest gives no cores, where rails limit what they may have."""
    limits_all = rails.quota != Rails().quota or rails.budget is not None
    for role in unsized:
        if limits_all or getattr(rails, role) != RoleRails():
            raise InputError(
                f"Plan {plan.id} is held to guard rails, and its manifest does not say how many cores its "
                f"{role} asks for.",
                f"Write the requests of {role} into the manifest.",
            )


def _beyond(plan: Plan, rails: Rails) -> Iterator[str]:
    for role in ROLES:
        yield from _of_role(plan, rails, role)
    yield from _of_all(plan, rails)
    named = plan.job.deploy.priority_class
    if named and rails.priority_classes is not None and named not in rails.priority_classes:
        yield f"job.deploy.priority_class is '{named}', and {_list(rails.priority_classes)} may be"


def _of_role(plan: Plan, rails: Rails, role: Role) -> Iterator[str]:
    rail, count = getattr(rails, role), plan.target.replicas(role)
    if rail.replicas and not rail.replicas[0] <= count <= rail.replicas[1]:
        yield f"{role}.replicas is {count}, and {rail.replicas[0]} to {rail.replicas[1]} may be"
    groups: tuple[Group, ...] = getattr(plan.target, role)
    for group in groups:
        if rail.cpu and not rail.cpu[0] <= group.cpu <= rail.cpu[1]:
            yield f"{role}.cpu is {group.cpu:g}, and {rail.cpu[0]:g} to {rail.cpu[1]:g} may be"
        low, high = rail.memory_bytes or (0, 0)
        if rail.memory_bytes and group.replicas and not (group.memory_bytes and low <= group.memory_bytes <= high):
            told = format_bytes(group.memory_bytes) if group.memory_bytes else "not limited"
            yield f"{role}.memory is {told}, and {format_bytes(low)} to {format_bytes(high)} may be"
    if rail.step and plan.kind == "adjust" and plan.current is None:
        yield f"{role}.replicas may go by {rail.step} at a time, and the plan does not tell from what (current)"
    if rail.step and plan.current and abs(count - plan.current.replicas(role)) > rail.step:
        before = plan.current.replicas(role)
        yield f"{role}.replicas goes from {before} to {count}, and by {rail.step} at a time it may"


def _of_all(plan: Plan, rails: Rails) -> Iterator[str]:
    quota, target = rails.quota, plan.target
    if quota.cpu is not None and target.cores() > quota.cpu * (1 + 1e-9):
        yield f"all cores are {target.cores():g}, and the quota is {quota.cpu:g}"
    if quota.memory_bytes is not None:
        if any(group.replicas and not group.memory_bytes for _, group in target.groups):
            yield f"memory is not limited, and the quota is {format_bytes(quota.memory_bytes)}"
        elif target.memory_bytes() > quota.memory_bytes:
            wanted = format_bytes(target.memory_bytes())
            yield f"all memory is {wanted}, and the quota {format_bytes(quota.memory_bytes)}"
    if quota.gpu is not None and target.gpus() > quota.gpu:
        yield f"all GPUs are {target.gpus()}, and the quota is {quota.gpu}"
    if rails.budget is not None:
        yield from _budget(plan, rails.budget, rails.prices or plan.job.prices)


def _budget(plan: Plan, budget: float, prices: Prices) -> Iterator[str]:
    if plan.expected is None or not 0 < plan.expected.value < math.inf:
        yield "what it will cost was not foretold, and there is a budget"
        return
    if plan.job.samples is None:
        yield "the job does not say how many samples it trains (training.samples), and there is a budget"
        return
    hours = plan.job.samples / plan.expected.value / 3600
    cost = hours * allocation_price(plan.target, prices)
    if cost > budget:
        yield f"all samples will cost {format_number(cost, 4)}, and the budget is {format_number(budget, 4)}"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
