"""The control loop: observe one running job and change it where that pays; each turn is a list of named, timed steps.

    observe → refit → stabilize → scale → emit → apply

The loop does not act on observations that it cannot trust: the job trains on, and the decision says why.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from sizewright.datasets.runs.finished_job import is_cpu_limited
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import SizewrightError, StoreError
from sizewright.recommender.control.action import Action
from sizewright.recommender.control.decisions import Decision, DecisionLog, DecisionRecorder, Forecast
from sizewright.recommender.control.refit import Pool, Refit, SynchronousPool
from sizewright.recommender.control.run_evidence import RunEvidence
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.recommender.control.stabilize import Stabilizer
from sizewright.recommender.control.windows import MetricsWindows, Window
from sizewright.spec import (
    ROLES,
    Allocation,
    Candidate,
    ChangeCost,
    Executor,
    Handle,
    Job,
    Metrics,
    Plan,
    RestoresReplicas,
)
from sizewright.spec.reason import Reason
from sizewright.spec.wording import sentence

_LOG = logging.getLogger(__name__)

STEPS = ("observe", "refit", "stabilize", "scale", "emit", "apply")
_RECHECK_SHARE = 0.9
"""A kept allocation is compared again when the remaining samples have fallen to this share, or after a refit."""


class CoolDown:
    """The time after a change during which a job is left alone.

    The clock may jump: where it goes back, the cool-down starts again, so that it never lasts longer than its seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s, self._duration_s = 0.0, 0.0

    def begin(self, seconds: float) -> None:
        """Start the cool-down now."""
        self._began_s, self._duration_s = self._clock(), seconds

    @property
    def remaining_s(self) -> float:
        """Return the seconds to go; 0 or less when the cool-down is over."""
        now = self._clock()
        if now < self._began_s:
            self._began_s = now
        return self._duration_s - (now - self._began_s)


@dataclass
class _Turn:
    """The observation of one turn of the loop, and the seconds of its steps."""

    metrics: Metrics | None = None
    window: Window | None = None
    evidence: Trial | None = None
    timings_s: dict[str, float] = field(default_factory=dict)


class Controller:
    """Tune a job that `executor` runs at `allocation`.

    `clock` (seconds) and `now` (time of day) are passed in; `stopwatch` times the steps. `log` receives every decision;
    where it holds decisions about this run already, the loop continues from them. In a `dry_run` the loop makes plans
    without applying them; while `paused` is set it makes none. `on_error` receives the error where the log cannot be
    written: the job runs on. Models are fitted in `pool`.
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
        on_error: Callable[[StoreError], None] = lambda _: None,
        pool: Pool = SynchronousPool(),  # noqa: B008
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.job, self.allocation = job, allocation
        self.turn_s, self._dry_run = turn_s, dry_run
        self.paused = False
        self.latest: Metrics | None = None
        """The observation of this turn."""
        self.granted: Allocation | None = None
        """The allocation that the job got of a cluster which it shares; None where it chooses by itself."""
        self._executor, self._handle, self._scaler = executor, handle, scaler
        self._clock, self._now, self._stopwatch = clock, now, stopwatch
        self._recorder = DecisionRecorder(handle.id, log, on_error)
        self._windows = MetricsWindows()
        self._stabilizer = Stabilizer(job, executor.capabilities)
        evidence = RunEvidence(job, f"run-{handle.id}", allocation, now())
        self._fit = Refit(evidence, scaler, self._stabilizer.memory, pool)
        self._cool_down = CoolDown(clock)
        self._cool_down.begin(scaler.scaling.warm_up_s)
        self._failure_cool_down = CoolDown(clock)
        self._scaling_changes = 0
        self._kept: Action | None = None
        self._kept_at_samples_left = 0
        self._turn = _Turn()
        self._continue_earlier()

    def _continue_earlier(self) -> None:
        """Continue where an earlier loop of this run stopped, with the evidence that it had."""
        earlier = self._recorder.earlier
        if not earlier:
            return
        self._scaling_changes = sum(decision.stage == "scale" and decision.applied is True for decision in earlier)
        latest = {decision.allocation.model_dump_json(): decision.evidence for decision in earlier if decision.evidence}
        self._fit.add_earlier(list(latest.values()))

    def reconcile(self, metrics: Metrics | None = None) -> Decision:
        """Take one turn and return its decision; `metrics` is an observation that the caller has just made."""
        self._turn, self.latest = _Turn(), None
        with self._step("observe"):
            window = self._observe(metrics)
        if isinstance(window, Reason):
            return self._record(Action((window,)), "blind")
        assert self.latest is not None  # the window was made from it
        running = {role: len(self.latest.of(role)) for role in ROLES}
        missing = self._stabilizer.missing.update(window.seconds, self.allocation, running)
        with self._step("refit"):
            self._learn(window, complete=not missing)
        self._turn.evidence = self._fit.evidence.current_trial()
        with self._step("stabilize"):
            stage, action = "stabilize", self._stabilize(window)
        if missing:
            if action is None:
                return self._record(Action((missing,)), "blind")
        elif action is None or not action.changes:
            with self._step("scale"):
                scaled = self._scale(window)
            if action is None or scaled.changes:
                stage, action = "scale", scaled
        return self._carry_out(stage, action)

    def candidates(self) -> tuple[Candidate, ...]:
        """Return what the job could have of a cluster that it shares; nothing while its speed is not known."""
        window = self._turn.window
        if window is None or self._fit.missing_data or self._fit.evidence.current_trial() is None:
            return ()
        return self._scaler.candidates(self.allocation, self._fit.evidence.rate[0], self._ps_needs(window))

    def change_s(self) -> float:
        """Return the seconds of a change of the allocation."""
        return self._change_cost().seconds

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = self._stopwatch()
        try:
            yield
        finally:
            self._turn.timings_s[name] = self._stopwatch() - began

    def _observe(self, metrics: Metrics | None) -> Window | Reason:
        """Return the window since the last observation, or why there is none."""
        try:
            metrics = metrics or self._executor.observe(self._handle)
        except SizewrightError as error:
            self._windows.forget()
            return Reason.of("not_observed", error=error.message.rstrip("."))
        self._turn.metrics = self.latest = metrics
        if metrics.allocation and metrics.allocation != self.allocation:
            self._allocation_changed(metrics.allocation)
        window = self._windows.add(self._clock(), metrics)
        if isinstance(window, Window):
            self._turn.window = window
        return window

    def _learn(self, window: Window, *, complete: bool) -> None:
        self._stabilizer.add(window, self.allocation, complete=complete)
        # With a straggler, a missing replica, or more cores than its own, its speed is no evidence of the allocation.
        if not complete or not self._cores_limited or self._stabilizer.slowed_by_straggler:
            return
        if self._fit.add(window):
            self._kept = None
            needed = self._stabilizer.forecast(window, self.allocation).ps_peak_at_end_bytes
            if needed and not self._dry_run and isinstance(self._executor, RestoresReplicas):
                self._executor.expect_memory(self._handle, needed)

    @property
    def _cores_limited(self) -> bool:
        """Return whether replicas get no more than the cores of their allocation, so that it explains their speed."""
        return self.latest is None or is_cpu_limited(self.allocation, self.latest.limited_by)

    def _stabilize(self, window: Window) -> Action | None:
        cost = self._change_cost()
        rebalance_cost = None
        if self._stabilizer.findings:  # asking may be a call to another process
            rebalance_cost = self._executor.change_cost(self._plan(Action((), rebalance=True)))
        return self._stabilizer.act(window, self.allocation, cost, self.turn_s, rebalance_cost)

    def _scale(self, window: Window) -> Action:
        if self.granted is not None:
            return self._follow_grant(self.granted)
        if not self._cores_limited:
            return Action((Reason.of("cores_not_limited"),))
        if self._fit.missing_data:
            return Action((Reason.of("model_not_fitted", error=self._fit.missing_data),))
        if window.samples_left is not None and not window.samples_left:
            return Action((Reason.of("all_samples_trained"),))
        if self._turn.evidence is None:
            return Action((Reason.of("trained_too_briefly"),))
        samples_left = window.expected_left
        if self._kept and samples_left > _RECHECK_SHARE * self._kept_at_samples_left:
            return self._kept
        rate, error = self._fit.evidence.rate
        action = self._scaler.act(
            self.allocation,
            rate,
            error,
            samples_left,
            change_s=self._change_cost().seconds,
            resize_s=self._resize_s(),
            ps_needs=self._ps_needs(window),
            changes=self._scaling_changes,
        )
        self._kept = None
        if self._dry_run or not action.changes:
            self._kept = action._replace(choices=())  # choices are recorded once
        self._kept_at_samples_left = samples_left
        return action

    def _follow_grant(self, granted: Allocation) -> Action:
        if granted == self.allocation:
            return Action((Reason.of("share_kept"),))
        return Action((Reason.of("share", target=granted.describe()),), target=granted)

    def _carry_out(self, stage: str, action: Action) -> Decision:
        if not action.changes:
            return self._record(action, "keep", stage)
        if self.paused:
            return self._record(Action((Reason.of("paused"), *action.reasons)), "keep", stage)
        remaining_s = (self._cool_down if stage == "scale" else self._failure_cool_down).remaining_s
        if remaining_s > 0:
            cool_down = Reason.of("cool_down", remaining_s=remaining_s)
            return self._record(Action((cool_down, *action.reasons)), "keep", stage)
        with self._step("emit"):
            plan = self._plan(action)
        if self._dry_run:
            return self._record(action, "adjust", stage, plan)
        with self._step("apply"):
            error = self._apply(plan)
        if error is None:
            if stage == "scale":
                self._scaling_changes += 1
            else:
                self._stabilizer.remedy_applied()
        return self._record(action, "adjust", stage, plan, applied=error is None, error=error or "")

    def _ps_needs(self, window: Window) -> Callable[[int], float | None]:
        """Return the function from a number of PS to the bytes that each needs at the end."""
        samples_at_end = window.samples_trained + window.expected_left
        return lambda ps: self._stabilizer.memory.needed_bytes(samples_at_end, ps)

    def _change_cost(self) -> ChangeCost:
        """Return the cost of starting or stopping replicas; an executor's costs depend on the kind of change only."""
        return self._executor.change_cost(self._plan(Action((), migrate=("any",))))

    def _resize_s(self) -> float:
        """Return the seconds of a change of limits only."""
        workers = tuple(group.model_copy(update={"cpu": 2 * group.cpu}) for group in self.allocation.worker)
        target = self.allocation.model_copy(update={"worker": workers})
        return self._executor.change_cost(self._plan(Action((), target=target))).seconds

    def _plan(self, action: Action) -> Plan:
        return Plan(
            id=f"{self.job.name}-{uuid.uuid4().hex[:8]}",
            kind="adjust",
            job=self.job,
            reason=action.reason,
            target=action.target or self.allocation,
            current=self.allocation,
            migrate=action.migrate,
            rebalance=action.rebalance,
        )

    def _apply(self, plan: Plan) -> str | None:
        """Apply the plan; return why that failed, or None. After a failure the job trains on."""
        cooldown_s = self._cooldown_s(plan)
        error_message = None
        try:
            self._executor.adjust(self._handle, plan)
        except Exception as error:  # any failure is recorded, and the change is not tried again at once
            _LOG.debug("A plan could not be applied.", exc_info=error)
            self._failure_cool_down.begin(cooldown_s)
            error_message = error.message if isinstance(error, SizewrightError) else f"{type(error).__name__}: {error}"
        else:
            if plan.target != self.allocation:
                self._allocation_changed(plan.target)
            with suppress(SizewrightError):  # the change is done, whether or not its cost can be asked for
                cooldown_s = self._cooldown_s(plan)  # now with the seconds that this change took
        finally:
            self._windows.forget()
            self._stabilizer.forget()
            self._cool_down.begin(cooldown_s)
        return error_message

    def _cooldown_s(self, plan: Plan) -> float:
        scaling = self._scaler.scaling
        return max(scaling.cooldown_s, scaling.cooldown_of_change * self._executor.change_cost(plan).seconds)

    def _allocation_changed(self, allocation: Allocation) -> None:
        """Follow a change that this loop or someone else made."""
        self.allocation = allocation
        if self.granted is not None:  # what the stabilizer has enlarged is not taken back before the next round
            self.granted = allocation
        self._fit.changed(allocation)
        self._kept = None
        self._windows.forget()
        self._stabilizer.forget()

    def _record(
        self,
        action: Action,
        kind: Literal["keep", "adjust", "blind"],
        stage: str = "",
        plan: Plan | None = None,
        *,
        applied: bool | None = None,
        error: str = "",
    ) -> Decision:
        metrics, window = self._turn.metrics, self._turn.window
        findings = tuple(finding.reason for finding in self._stabilizer.findings)
        return self._recorder.add(
            at=self._now(),
            job_hash=self.job.hash,
            kind=kind,
            stage=stage,
            reason=action.reason,
            details=action.reasons,
            allocation=plan.current if plan and plan.current else self.allocation,
            target=action.target,
            migrate=action.migrate,
            rebalance=action.rebalance,
            choices=action.choices,
            plan_id=plan.id if plan else "",
            applied=applied,
            error=error,
            throughput=window.throughput if window else None,
            samples_trained=metrics.samples_trained if metrics else 0,
            samples_left=metrics.samples_left if metrics else None,
            findings=tuple(map(sentence, findings)),
            finding_details=findings,
            forecast=self._forecast(window) if window else Forecast(),
            evidence=self._turn.evidence,
            timings_s=self._turn.timings_s,
        )

    def _forecast(self, window: Window) -> Forecast:
        rate = self._fit.evidence.rate[0] or window.throughput
        finish_s = window.samples_left / rate if window.samples_left is not None and rate else None
        return self._stabilizer.forecast(window, self.allocation).model_copy(update={"finish_s": finish_s})
