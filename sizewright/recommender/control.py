"""The control loop: watches one running job and changes it where that pays; each turn is a list of named, timed steps.

    observe → refit → stabilize → scale → emit → apply

What cannot be trusted is not acted on: the job trains on, and the decision says why.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from sizewright.datasets.finished import is_held
from sizewright.datasets.trials import Trial
from sizewright.errors import SizewrightError, StoreError
from sizewright.recommender.action import Action
from sizewright.recommender.cool_down import CoolDown
from sizewright.recommender.decisions import Decision, DecisionLog, Forecast, Journal
from sizewright.recommender.online_fit import AtOnce, OnlineFit, Pool
from sizewright.recommender.run_evidence import RunEvidence
from sizewright.recommender.scaler import AutoScaler
from sizewright.recommender.stabilize import Stabilizer
from sizewright.recommender.windows import Looks, Window
from sizewright.spec import ROLES, Allocation, ChangeCost, Executor, Handle, Job, Metrics, Plan, RestoresReplicas

_LOG = logging.getLogger(__name__)

STEPS = ("observe", "refit", "stabilize", "scale", "emit", "apply")
_WEIGHED_ANEW = 0.9
"""What was kept is weighed anew when so much is left of what was left then, and when something was learned."""


class Tuner:
    """Of a job that `executor` runs at `allocation`. Clock and time of day are passed in; `stopwatch` times its steps.

    `log` keeps every decision; where it holds some of this run already, the loop goes on from the last. In a `dry_run`
    plans are made and none is applied, and while `paused` is set none is made. `forgive` tells of a log that cannot be
    written: the job is kept running. Fits are made in `pool`.
    """

    def __init__(
        self,
        job: Job,
        executor: Executor,
        handle: Handle,
        allocation: Allocation,
        scaler: AutoScaler,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        log: DecisionLog | None = None,
        turn_s: float = 5.0,
        dry_run: bool = False,
        forgive: Callable[[StoreError], None] = lambda _: None,
        pool: Pool = AtOnce(),  # noqa: B008
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.job, self.allocation = job, allocation
        self._executor, self._handle, self._scaler = executor, handle, scaler
        self._clock, self._now, self._stopwatch = clock, now, stopwatch
        self.turn_s, self._dry_run = turn_s, dry_run
        self._journal = Journal(handle.id, log, forgive)
        self.paused = False
        self.latest: Metrics | None = None
        """What was observed in this turn."""
        self._looks, self._stabilizer = Looks(), Stabilizer(job, executor.capabilities)
        evidence = RunEvidence(job, f"run-{handle.id}", allocation, now())
        self._fit = OnlineFit(evidence, scaler, self._stabilizer.memory, pool)
        self._cool_down, self._refused = CoolDown(clock), CoolDown(clock)
        self._cool_down.begin(scaler.scaling.warm_up_s)
        self._kept: Action | None = None
        self._scaled = 0
        self._weighed_left = 0
        self._timings: dict[str, float] = {}
        self._told: Trial | None = None
        self._go_on()

    def turn(self, look: Metrics | None = None) -> Decision:
        """One look, unless its caller has just had one, and what comes of it."""
        self._timings, self._told, self.latest = {}, None, None
        with self._step("observe"):
            metrics, window = self._observe(look)
        if isinstance(window, str):
            return self._decided(metrics, None, Action(f"Nothing is done: {window}."), "blind")
        assert metrics is not None  # it made the window
        there = {role: len(metrics.of(role)) for role in ROLES}
        missing = self._stabilizer.missing.look(window.seconds, self.allocation, there)
        with self._step("refit"):
            self._refit(window, whole=not missing)
        self._told = self._fit.evidence.here()
        with self._step("stabilize"):
            stage, action = "stabilize", self._stabilize(window)
        if missing:
            if action is None:
                return self._decided(metrics, window, Action(f"Nothing is done: {missing}."), "blind")
        elif action is None or not action.changes:
            with self._step("scale"):
                scaled = self._scale(window)
            if action is None or scaled.changes:
                stage, action = "scale", scaled
        return self._carried_out(metrics, window, stage, action)

    def _observe(self, look: Metrics | None) -> tuple[Metrics | None, Window | str]:
        try:
            metrics = self.latest = look or self._executor.observe(self._handle)
        except SizewrightError as error:
            self._looks.forget()
            return None, f"the job tells nothing ({error.message.rstrip('.')})"
        if metrics.allocation and metrics.allocation != self.allocation:
            self._now_at(metrics.allocation)
        return metrics, self._looks.add(self._clock(), metrics)

    def _refit(self, window: Window, *, whole: bool) -> None:
        self._stabilizer.look(window, self.allocation, whole=whole)
        # Held up by one replica, short of one, or free to take more cores, it tells nothing of the allocation.
        if whole and self._held and not self._stabilizer.held_up and self._fit.add(window):
            self._kept = None
            self._expect_memory(window)

    def _expect_memory(self, window: Window) -> None:
        needed = self._stabilizer.forecast(window, self.allocation).ps_peak_at_end_bytes
        if needed and not self._dry_run and isinstance(self._executor, RestoresReplicas):
            self._executor.expect_memory(self._handle, needed)

    def _stabilize(self, window: Window) -> Action | None:
        cost = self._change_cost()
        rebalancing = None
        if self._stabilizer.findings:  # to ask may be a call to another process
            rebalancing = self._executor.change_cost(self._plan(Action("", rebalance=True)))
        return self._stabilizer.act(window, self.allocation, cost, self.turn_s, rebalancing)

    @property
    def _held(self) -> bool:
        """Whether replicas have the cores of their allocation and no more, so that their speed is its own."""
        return self.latest is None or is_held(self.allocation, self.latest.limited_by)

    def _scale(self, window: Window) -> Action:
        if not self._held:
            return Action("Its replicas are not held to their cores: their speed tells nothing of other allocations.")
        if self._fit.unknown:
            return Action(f"Too little is known of other allocations: {self._fit.unknown}")
        if window.samples_left is not None and not window.samples_left:
            return Action("All is trained.")
        rate, error = self._fit.evidence.rate
        if self._told is None:
            return Action("It has not trained long enough at this allocation.")
        left = window.expected_left
        if self._kept and left > _WEIGHED_ANEW * self._weighed_left:
            return self._kept
        cost = self._change_cost()
        end = window.samples_trained + left

        def ps_needs(ps: int) -> float | None:
            return self._stabilizer.memory.wanted_bytes(end, ps)

        found = self._scaler.act(
            self.allocation, rate, error, left, cost.seconds, self._resize_s(), ps_needs, self._scaled
        )
        still = self._dry_run or not found.changes
        self._kept = found._replace(choices=()) if still else None  # they are told once
        self._weighed_left = left
        return found

    def _carried_out(self, metrics: Metrics | None, window: Window, stage: str, action: Action) -> Decision:
        if not action.changes:
            return self._decided(metrics, window, action, "keep", stage)
        if self.paused:
            return self._decided(metrics, window, Action(f"The loop is paused. {action.reason}"), "keep", stage)
        left_s = (self._cool_down if stage == "scale" else self._refused).left_s
        if left_s > 0:
            why = Action(f"In {left_s:.0f} s it may be changed again. {action.reason}")
            return self._decided(metrics, window, why, "keep", stage)
        with self._step("emit"):
            plan = self._plan(action)
        if self._dry_run:
            return self._decided(metrics, window, action, "adjust", stage, plan)
        with self._step("apply"):
            error = self._apply(plan)
        self._scaled += stage == "scale" and not error
        if stage == "stabilize" and not error:
            self._stabilizer.relieved()
        return self._decided(metrics, window, action, "adjust", stage, plan, applied=not error, error=error)

    def _change_cost(self) -> ChangeCost:
        """Of replicas that come or go: executors tell the changes of one job apart by their kind only."""
        return self._executor.change_cost(self._plan(Action("", migrate=("any",))))

    def _resize_s(self) -> float:
        """Of the same replicas with other limits."""
        more = tuple(group.model_copy(update={"cpu": 2 * group.cpu}) for group in self.allocation.worker)
        target = self.allocation.model_copy(update={"worker": more})
        return self._executor.change_cost(self._plan(Action("", target=target))).seconds

    def _plan(self, action: Action) -> Plan:
        return Plan(
            id=f"{self.job.name}-{uuid.uuid4().hex[:8]}", kind="adjust", job=self.job, reason=action.reason,
            target=action.target or self.allocation, current=self.allocation, migrate=action.migrate,
            rebalance=action.rebalance,
        )  # fmt: skip

    def _apply(self, plan: Plan) -> str:
        """Why it could not be; the job trains on as it was then."""
        cooldown_s = self._cooldown_s(plan)
        try:
            self._executor.adjust(self._handle, plan)
        except Exception as error:  # whatever it is, it is told, and not tried again at once
            _LOG.debug("A plan could not be carried out.", exc_info=error)
            self._refused.begin(cooldown_s)
            return error.message if isinstance(error, SizewrightError) else f"{type(error).__name__}: {error}"
        finally:
            self._looks.forget()
            self._stabilizer.forget()
            self._cool_down.begin(cooldown_s)
        if plan.target != self.allocation:
            self._now_at(plan.target)
        with suppress(SizewrightError):  # it was changed, whether or not that can be asked
            self._cool_down.begin(self._cooldown_s(plan))  # by what this one has taken, too
        return ""

    def _cooldown_s(self, plan: Plan) -> float:
        scaling = self._scaler.scaling
        return max(scaling.cooldown_s, scaling.cooldown_of_change * self._executor.change_cost(plan).seconds)

    def _now_at(self, allocation: Allocation) -> None:
        """It was changed, by this loop or by others."""
        self.allocation = allocation
        self._fit.changed(allocation)
        self._kept = None
        self._looks.forget()
        self._stabilizer.forget()

    def _decided(
        self,
        metrics: Metrics | None,
        window: Window | None,
        action: Action,
        kind: Any,
        stage: str = "",
        plan: Plan | None = None,
        **told: Any,
    ) -> Decision:
        before = plan.current if plan and plan.current else self.allocation
        return self._journal.add(
            at=self._now(), job_hash=self.job.hash, kind=kind, stage=stage, reason=action.reason, allocation=before,
            target=action.target, migrate=action.migrate, rebalance=action.rebalance, choices=action.choices,
            plan_id=plan.id if plan else "", throughput=window.throughput if window else None,
            samples_trained=metrics.samples_trained if metrics else 0,
            samples_left=metrics.samples_left if metrics else None,
            findings=tuple(finding.reason for finding in self._stabilizer.findings),
            evidence=self._told, timings_s=self._timings, forecast=self._forecast(metrics, window), **told,
        )  # fmt: skip

    def _forecast(self, metrics: Metrics | None, window: Window | None) -> Forecast:
        if metrics is None or window is None:
            return Forecast()
        left, rate = window.samples_left, self._fit.evidence.rate[0] or window.throughput
        finish_s = left / rate if left is not None and rate else None
        return self._stabilizer.forecast(window, self.allocation).model_copy(update={"finish_s": finish_s})

    def _go_on(self) -> None:
        """From where an earlier loop beside this run stopped: what it knew of other allocations."""
        if earlier := self._journal.earlier:
            self._scaled = sum(told.stage == "scale" and told.applied is True for told in earlier)
            latest = {told.allocation.model_dump_json(): told.evidence for told in earlier if told.evidence}
            self._fit.know([trial for trial in latest.values() if trial])

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = self._stopwatch()
        try:
            yield
        finally:
            self._timings[name] = self._stopwatch() - began
