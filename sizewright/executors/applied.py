"""What a cluster has of a job: its sizes, and the plan that it was applied by."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sizewright.errors import InputError
from sizewright.executors.plan_notes import APPLIED_AT, PLAN_ID, read_notes
from sizewright.executors.slots import rounded
from sizewright.spec import ROLES, Allocation, Group, Plan, Role
from sizewright.spec.units import format_count

if TYPE_CHECKING:
    from sizewright.executors.manifest_executor import ManifestExecutor

Sizes = dict[Role, tuple[Group, ...]]


class Applied:
    """One object, as the manifests of `executor` are read; `job`, where that is another, has what its sizes are not."""

    def __init__(
        self, document: Mapping[str, Any], executor: ManifestExecutor, job: Mapping[str, Any] | None = None
    ) -> None:
        self._document, self._executor, self._job = dict(document), executor, dict(job or document)
        self._notes: Mapping[str, str] = document["metadata"].get("annotations") or {}

    @property
    def sizes(self) -> Sizes:
        """That it asks for."""
        return self._executor.sizes_of(self._document)

    def batch_size(self, usual: int) -> int:
        """That its workers are told; `usual` where they are told none."""
        workers = self._executor.slots(self._job, "worker")
        return workers[0].read_batch_size(usual) if workers else usual

    def by(self, plan: Plan) -> bool:
        """Whether by this very plan. Raises InputError where a plan of this id brought other sizes."""
        if self._notes.get(PLAN_ID) != plan.id:
            return False
        if self.sizes != self._executor.asks_for(plan):
            raise InputError(f"Plan {plan.id} was applied with other sizes.", "Give the changed plan an id of its own.")
        return True

    def has(self, plan: Plan, target: Allocation) -> bool:
        """Whether it asks already for the sizes that the plan would with this target."""
        if self.batch_size(target.batch_size) != target.batch_size:
            return False
        if self.sizes == sized(target, self._executor):
            return True
        return self.sizes == self._executor.asks_for(plan.model_copy(update={"target": target}))

    def check_current(self, plan: Plan) -> None:
        """Raises InputError for a plan that was made for other sizes than it has."""
        if plan.current is None or self.has(plan, plan.current):
            return
        told = [
            f"{g.replicas} × {role} of {format_count(g.cpu, 'core')}" for role, gs in self.sizes.items() for g in gs
        ]
        batch = f"batch {self.batch_size(plan.current.batch_size)}"
        raise InputError(
            f"Plan {plan.id} was made for {plan.current.describe()}, and the cluster has {', '.join(told)}, {batch}.",
            "Make a new plan from what runs now.",
        )

    def check_cool_down(self, plan: Plan, now_s: float) -> None:
        """Raises InputError within that of the plan it was applied by."""
        try:
            left_s = (seconds_of(self._notes.get(APPLIED_AT)) or 0.0) + read_notes(self._document).cooldown_s - now_s
        except InputError:  # it was not applied by a plan
            return
        if left_s > 0:
            raise InputError(
                f"Job {plan.job.name} is in the cool-down of its last plan for another {left_s:.0f} s.",
                f"Apply plan {plan.id} after that.",
            )

    def changes_in_place(self, plan: Plan, scales: frozenset[Role], resizes: bool) -> bool:
        """Whether it is enough to change numbers of these roles, or sizes where the platform `resizes`."""
        target, before, after = plan.target, self.sizes, self._executor.asks_for(plan)
        for role in ROLES:
            one, other = before.get(role, ()), after.get(role, ())
            if role not in scales and [g.replicas for g in one] != [g.replicas for g in other]:
                return False
            if not resizes and [_one_of(g) for g in one] != [_one_of(g) for g in other]:
                return False
        same_batch = self.batch_size(target.batch_size) == target.batch_size
        return same_batch and _started(self._job, self._executor) == _started(
            self._executor.document(plan), self._executor
        )


def _started(document: Mapping[str, Any], executor: ManifestExecutor) -> list[Any]:
    """What containers of a job start and are told: another one is for new pods only."""
    found = []
    for role in ROLES:
        for slot in executor.slots(dict(document), role):
            told = [each for each in slot.container.get("env") or [] if "value" in each]
            found.append([role, slot.container.get("command"), slot.container.get("args"), told])
    return found


def sized(allocation: Allocation, executor: ManifestExecutor) -> Sizes:
    """Sizes as an object of the executor's platform asks for them."""
    found: dict[Role, list[Group]] = {}
    for role, group in allocation.groups:
        if group.replicas:
            found.setdefault(role, []).append(rounded(group, executor.cpu_step_m))
    return {role: tuple(groups) for role, groups in found.items()}


def seconds_of(text: str | None) -> float | None:
    """A time as Kubernetes writes it, on the clock of `time.time`; None for what is none."""
    try:
        return datetime.fromisoformat((text or "").replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def _one_of(group: Group) -> Group:
    return group.model_copy(update={"replicas": 1})
