"""An executor behind guardrails: refuse plans that violate them, apply each plan once, and record everything."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sizewright.datasets.trials.trial import now
from sizewright.errors import InputError, SizewrightError, StoreError
from sizewright.executors.hooks import AdaptsPlans, KnowsUnsizedRoles, MeasuresChanges, NamesPlatform, RestartsJobs
from sizewright.runtime.audit_log import AuditLog, Entry
from sizewright.runtime.guardrails import GuardrailError, check_rails, check_sized
from sizewright.spec import Executor, Handle, Plan, Rails, RestoresReplicas

_LOG = logging.getLogger(__name__)


class GuardrailExecutor:
    """`executor` behind `rails`; `audit_log` records each plan, who requested it, and the seconds of each change.

    A result that cannot be recorded is logged as a warning, and the plan stays applied. `asked_by` is the requester of
    plans that name none. Without `once` a launch plan may be applied again, as when the same file is trained twice. All
    other attributes are those of `executor`.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        rails: Rails = Rails(),  # noqa: B008
        audit_log: AuditLog | None = None,
        asked_by: str = "",
        once: bool = True,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = now,
    ) -> None:
        self._executor = executor
        self._rails = rails
        self._audit_log = audit_log
        self._asked_by = asked_by
        self._clock = clock
        self._now = now
        self._once = once
        if isinstance(executor, RestartsJobs):
            executor.may_restart = rails.restarts
        self._share_costs()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def launch(self, plan: Plan) -> Handle:
        """Launch the plan; return the earlier handle where the plan was applied already.

        Raises InputError for a plan that violates the guardrails.
        """
        if self._once and (applied := self.find_applied(plan)) and applied.handle:
            return applied.handle
        return self._record_outcome(plan, lambda: self._executor.launch(plan))

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Apply the plan to a running job; do nothing where it was applied already.

        Raises InputError for a plan that violates the guardrails.
        """
        if self.find_applied(plan):
            return

        def adjust() -> Handle:
            self._executor.adjust(handle, plan)
            return handle

        self._record_outcome(plan, adjust)

    def expect_memory(self, handle: Handle, ps_bytes: int) -> None:
        """Pass on the memory that a PS is forecast to need, for executors that restart PS that ran out of memory."""
        if isinstance(self._executor, RestoresReplicas):
            self._executor.expect_memory(handle, ps_bytes)

    def find_applied(self, plan: Plan) -> Entry | None:
        """Return the entry of a plan that was applied already, or None.

        Raises InputError where the plan had another target then.
        """
        entry = self._audit_log.last_applied(plan, self._executor.name, self._where) if self._audit_log else None
        if entry and entry.target != plan.target:
            raise InputError(
                f"Plan {plan.id} was already applied on {entry.at:%Y-%m-%d %H:%M} with another target "
                f"({entry.target.describe()}).",
                "Give the changed plan a new id.",
            )
        return entry

    def _share_costs(self) -> None:
        """Learn the costs that earlier processes recorded, and record those of this one."""
        if self._audit_log is None or not isinstance(self._executor, MeasuresChanges):
            return
        costs = self._executor.change_costs
        if self._audit_log.path in costs.recorded_in:
            return
        costs.recorded_in.add(self._audit_log.path)
        for kind, seconds in self._audit_log.measured(self._executor.name):
            costs.remember(kind, seconds)
        costs.listeners.append(lambda plan, kind, s: self._record(plan, "trains", s, change=kind))

    @property
    def _where(self) -> str:
        return str(self._executor.where) if isinstance(self._executor, NamesPlatform) else ""

    def check(self, plan: Plan, *, record: bool = True) -> None:
        """Raise InputError for a plan that violates the guardrails as the executor would apply it; `record` that."""
        executor = self._executor
        try:
            if isinstance(executor, KnowsUnsizedRoles) and self._rails != Rails() and plan.kind != "keep":
                check_sized(plan, executor.unsized(plan), self._rails)
            check_rails(executor.as_rendered(plan) if isinstance(executor, AdaptsPlans) else plan, self._rails)
        except SizewrightError as error:
            violations = error.violations if isinstance(error, GuardrailError) else ()
            if record:
                self._record(plan, "refused", 0.0, why=error.message, details=violations)
            raise

    def _record_outcome(self, plan: Plan, change: Callable[[], Handle]) -> Handle:
        """Check the plan, make its change, and record the result."""
        began = self._clock()
        self.check(plan)
        try:
            handle = change()
        except BaseException as error:
            # Only a refusal says that the plan was not applied: an answer of the platform may have been lost.
            result = "refused" if isinstance(error, InputError) else "failed"
            self._record(plan, result, self._clock() - began, why=_why(error))
            raise
        self._record(plan, "applied", self._clock() - began, handle=handle)
        return handle

    def _record(self, plan: Plan, became: Any, seconds: float, **fields: Any) -> None:
        """Record a result; warn if that fails, which must neither replace an error nor hide that a plan was applied."""
        if self._audit_log is None or plan.kind == "keep":
            return
        entry = Entry(
            at=self._now(),
            plan_id=plan.id,
            kind=plan.kind,
            job=plan.job.name,
            executor=self._executor.name,
            where=self._where,
            asked_by=plan.asked_by or self._asked_by,
            target=plan.target,
            reason=plan.reason,
            became=became,
            seconds=max(seconds, 0.0),
            **fields,
        )
        try:
            self._audit_log.append(entry)
        except StoreError as error:
            event = {
                "applied": f"was applied{f' as {entry.handle.id}' if entry.handle else ''}",
                "refused": "was refused",
            }
            _LOG.warning(f"Plan {plan.id} {event.get(became, became)}, but not recorded: {error}")


def _why(error: BaseException) -> str:
    if isinstance(error, SizewrightError):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "The change was interrupted."
    return f"{type(error).__name__}: {error}"
