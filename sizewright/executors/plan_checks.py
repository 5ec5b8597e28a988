"""Checks of plans that executors share: each raises an error that says what is wrong and what to do."""

from __future__ import annotations

from typing import Protocol

from sizewright.errors import InputError
from sizewright.executors.registry import unsupported
from sizewright.spec import Capabilities, Handle, Plan


class _Capable(Protocol):
    name: str
    capabilities: Capabilities


def check_launches(plan: Plan) -> None:
    """Raise InputError for a plan of another kind than launch."""
    if plan.kind != "launch":
        raise InputError(
            f"Plan {plan.id} is of kind '{plan.kind}' and cannot launch a job.",
            "Make a launch plan of its target, or pass it to adjust with the handle of the running job.",
        )


def check_adjusts(plan: Plan, handle: Handle) -> None:
    """Raise InputError for a plan that launches a job, or is for another job than the one that runs."""
    if plan.kind == "launch" or plan.job.name != handle.job:
        raise InputError(
            f"Plan {plan.id} is of kind '{plan.kind}' for {plan.job.name}, but {handle.id} is running.",
            "Make a plan that adjusts it.",
        )


def check_capable(executor: _Capable, plan: Plan) -> None:
    """Raise UnsupportedError for a plan that migrates or rebalances where the executor cannot."""
    for capability in ("migrate", "rebalance"):
        if getattr(plan, capability) and not getattr(executor.capabilities, capability):
            raise unsupported(executor.name, capability)


def check_cool_down(plan: Plan, ends_at_s: float, now_s: float) -> None:
    """Raise InputError while the cool-down of the plan that was applied last has not ended."""
    if ends_at_s > now_s:
        raise InputError(
            f"Job {plan.job.name} is in the cool-down of its last plan for another {ends_at_s - now_s:.0f} s.",
            f"Apply plan {plan.id} after that.",
        )


def check_same(plan: Plan, applied: object, planned: object, what: str = "sizes") -> None:
    """Raise InputError where a plan that was applied before has changed since in `what`."""
    if applied != planned:
        raise InputError(f"Plan {plan.id} was applied with other {what}.", "Give the changed plan an id of its own.")


def check_current(plan: Plan, is_current: bool, current: str) -> None:
    """Raise InputError where the plan was made for another allocation than the `current` one of its job."""
    if plan.current is not None and not is_current:
        raise InputError(
            f"Plan {plan.id} was made for {plan.current.describe()}, but {plan.job.name} runs with {current}.",
            "Make a new plan from what runs now.",
        )


def check_may_restart(job: str, may_restart: bool) -> None:
    """Raise InputError where a change needs a restart of its job, and none is allowed."""
    if not may_restart:
        raise InputError(
            f"This change would restart {job}, which is not allowed.",
            "Plan a change that the platform makes while the job runs, or allow restarts.",
        )


def check_no_job(job: str, exists: bool) -> None:
    """Raise InputError where another job has the name of the one to launch."""
    if exists:
        raise InputError(f"There is a {job} already.", "Make a plan that adjusts it, or rename the job.")


def check_not_ended(job: str, has_ended: bool) -> None:
    """Raise InputError where the job to adjust has ended."""
    if has_ended:
        raise InputError(f"{job} has ended: there is nothing to change.", "Launch it with a new plan.")
