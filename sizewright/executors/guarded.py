"""Any executor behind guard rails: what is beyond them is refused, what was carried out once is not carried out again,
and all of it is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sizewright.datasets.trials import now
from sizewright.errors import InputError, SizewrightError
from sizewright.executors.change_costs import ChangeCosts, kind_of
from sizewright.executors.ledger import Entry, Ledger
from sizewright.executors.rails import check_rails, check_sized
from sizewright.spec import Executor, Handle, Plan, Rails, RestoresReplicas


class Guarded:
    """`executor`, held to `rails`; entries of `ledger` tell who asked (`asked_by`, where a plan does not say), and what
    changes have taken.

    Without `once` a plan that launches may be carried out again, as one trains the same file anew. What it does not
    have itself is the executor's own.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        rails: Rails = Rails(),  # noqa: B008
        ledger: Ledger | None = None,
        asked_by: str = "",
        once: bool = True,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = now,
    ) -> None:
        self._executor, self._rails, self._ledger = executor, rails, ledger
        self._asked_by, self._clock, self._now = asked_by, clock, now
        self._once = once
        self._learn(getattr(executor, "change_costs", None))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def launch(self, plan: Plan) -> Handle:
        """Start it; the handle of before, where this plan was carried out already.

        Raises InputError for a plan beyond the rails.
        """
        if self._once and (before := self.before(plan)) and before.handle:
            return before.handle
        return self._recorded(plan, lambda: self._executor.launch(plan))

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Change it; nothing, where this plan was carried out already.

        Raises InputError for a plan beyond the rails.
        """
        if not self.before(plan):
            self._recorded(plan, lambda: self._adjusted(handle, plan))

    def expect_memory(self, handle: Handle, ps_bytes: int) -> None:
        """What a PS is forecast to need, for an executor that restores those that memory ends."""
        if isinstance(self._executor, RestoresReplicas):
            self._executor.expect_memory(handle, ps_bytes)

    def _adjusted(self, handle: Handle, plan: Plan) -> Handle:
        self._executor.adjust(handle, plan)
        return handle

    def before(self, plan: Plan) -> Entry | None:
        """The entry of a plan that was carried out already. Raises InputError where it had other sizes then."""
        before = self._ledger.applied(plan, self._executor.name, self._where) if self._ledger else None
        if before and before.target != plan.target:
            raise InputError(
                f"Plan {plan.id} was carried out on {before.at:%Y-%m-%d %H:%M}, to other sizes "
                f"({before.target.describe()}).",
                "Give the changed plan an id of its own.",
            )
        return before

    def _learn(self, costs: ChangeCosts | None) -> None:
        """From what earlier processes measured; what this one measures is kept for the next."""
        if self._ledger is None or costs is None or self._ledger.path in costs.kept_in:
            return
        costs.kept_in.add(self._ledger.path)
        for kind, seconds in self._ledger.measured(self._executor.name):
            costs.remember(kind, seconds)
        costs.listeners.append(lambda plan, s: self._record(plan, "trains", s, change=kind_of(plan)))

    @property
    def _where(self) -> str:
        return str(getattr(self._executor, "where", ""))

    def check(self, plan: Plan) -> None:
        """Raises InputError for a plan beyond the rails as the executor would carry it out; that is recorded."""
        as_rendered = getattr(self._executor, "as_rendered", None)
        unsized = getattr(self._executor, "unsized", None)
        try:
            if unsized and self._rails != Rails() and plan.kind != "keep":
                check_sized(plan, unsized(plan), self._rails)
            check_rails(as_rendered(plan) if as_rendered else plan, self._rails)
        except SizewrightError as error:
            self._record(plan, "refused", 0.0, why=error.message)
            raise

    def _recorded(self, plan: Plan, carry_out: Callable[[], Handle]) -> Handle:
        began = self._clock()
        self.check(plan)
        try:
            handle = carry_out()
        except SizewrightError as error:
            self._record(plan, "refused", self._clock() - began, why=error.message)
            raise
        self._record(plan, "applied", self._clock() - began, handle=handle)
        return handle

    def _record(self, plan: Plan, became: Any, seconds: float, **told: Any) -> None:
        if self._ledger and plan.kind != "keep":
            self._ledger.append(
                Entry(
                    at=self._now(), plan_id=plan.id, kind=plan.kind, job=plan.job.name, executor=self._executor.name,
                    where=self._where, asked_by=plan.asked_by or self._asked_by, target=plan.target,
                    reason=plan.reason, became=became, seconds=max(seconds, 0.0), **told,
                )
            )  # fmt: skip
