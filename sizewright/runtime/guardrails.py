"""Check plans against guardrails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sizewright.errors import InputError
from sizewright.spec import ROLES, Group, Plan, Prices, Rails, Role
from sizewright.spec.objective import allocation_price
from sizewright.spec.rails import RoleRails
from sizewright.spec.reason import Reason
from sizewright.spec.wording import clause


class GuardrailError(InputError):
    """A plan that violates its guardrails; `violations` say in which fields."""

    def __init__(self, message: str, remedy: str, violations: Sequence[Reason]) -> None:
        super().__init__(message, remedy)
        self.violations = tuple(violations)


def check_rails(plan: Plan, rails: Rails) -> None:
    """Raise GuardrailError that names each field of the plan outside the guardrails, with its value and limit."""
    if plan.kind == "keep":
        return
    if rails.paused:
        paused = Reason.of("rails_paused", plan=plan.id)
        raise GuardrailError(f"{clause(paused)}.", "Apply it when they no longer do.", (paused,))
    if violations := list(_violations(plan, rails)):
        named = "; ".join(map(clause, violations))
        raise GuardrailError(
            f"Plan {plan.id} violates its guardrails: {named}.", "Make a plan within the guardrails.", violations
        )


def check_sized(plan: Plan, unsized: Sequence[Role], rails: Rails) -> None:
    """Raise GuardrailError for roles whose manifest requests no cores, where guardrails limit their size."""
    limits_all = rails.quota != Rails().quota or rails.budget is not None
    for role in unsized:
        if limits_all or getattr(rails, role) != RoleRails():
            unknown = Reason.of("cores_unknown", plan=plan.id, role=role)
            raise GuardrailError(f"{clause(unknown)}.", f"Write the requests of {role} into the manifest.", (unknown,))


def _violations(plan: Plan, rails: Rails) -> Iterator[Reason]:
    for role in ROLES:
        yield from _role_violations(plan, rails, role)
    yield from _total_violations(plan, rails)
    priority_class = plan.job.deploy.priority_class
    if priority_class and rails.priority_classes is not None and priority_class not in rails.priority_classes:
        allowed = ", ".join(rails.priority_classes) or "none"
        yield Reason.of("priority_class_not_allowed", priority_class=priority_class, allowed=allowed)


def _role_violations(plan: Plan, rails: Rails, role: Role) -> Iterator[Reason]:
    rail, count = getattr(rails, role), plan.target.replicas(role)
    if rail.replicas and not rail.replicas[0] <= count <= rail.replicas[1]:
        low, high = rail.replicas
        yield Reason.of("replicas_outside_rail", role=role, replicas=count, min=low, max=high)
    groups: tuple[Group, ...] = getattr(plan.target, role)
    for group in groups:
        if rail.cpu and not rail.cpu[0] <= group.cpu <= rail.cpu[1]:
            yield Reason.of("cpu_outside_rail", role=role, cpu=group.cpu, min=rail.cpu[0], max=rail.cpu[1])
        low, high = rail.memory_bytes or (0, 0)
        if rail.memory_bytes and group.replicas and not (group.memory_bytes and low <= group.memory_bytes <= high):
            yield Reason.of("memory_outside_rail", role=role, memory_bytes=group.memory_bytes, min=low, max=high)
    if rail.step and plan.kind == "adjust" and plan.current is None:
        yield Reason.of("step_without_current", role=role, step=rail.step)
    if rail.step and plan.current and abs(count - plan.current.replicas(role)) > rail.step:
        current = plan.current.replicas(role)
        yield Reason.of("step_too_large", role=role, current=current, replicas=count, step=rail.step)


def _total_violations(plan: Plan, rails: Rails) -> Iterator[Reason]:
    quota, target = rails.quota, plan.target
    if quota.cpu is not None and target.cores() > quota.cpu * (1 + 1e-9):
        yield Reason.of("cores_over_quota", cores=target.cores(), quota=quota.cpu)
    if quota.memory_bytes is not None:
        if any(group.replicas and not group.memory_bytes for _, group in target.groups):
            yield Reason.of("memory_not_limited", quota_bytes=quota.memory_bytes)
        elif target.memory_bytes() > quota.memory_bytes:
            memory_bytes = target.memory_bytes()
            yield Reason.of("memory_over_quota", memory_bytes=memory_bytes, quota_bytes=quota.memory_bytes)
    if quota.gpu is not None and target.gpus() > quota.gpu:
        yield Reason.of("gpus_over_quota", gpus=target.gpus(), quota=quota.gpu)
    if rails.budget is not None:
        yield from _budget_violations(plan, rails.budget, rails.prices or plan.job.prices)


def _budget_violations(plan: Plan, budget: float, prices: Prices) -> Iterator[Reason]:
    if plan.expected is None or not 0 < plan.expected.value < math.inf:
        yield Reason.of("budget_without_prediction")
        return
    if plan.job.samples is None:
        yield Reason.of("budget_without_samples")
        return
    hours = plan.job.samples / plan.expected.value / 3600
    cost = hours * allocation_price(plan.target, prices)
    if cost > budget:
        yield Reason.of("cost_over_budget", cost=cost, budget=budget)
