"""The base of `local` and `ray`: apply plans through a `Session`, live, while the job trains on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sizewright.errors import InputError, SizewrightError
from sizewright.executors.change_costs import SESSION_PRIORS, ChangeCosts
from sizewright.executors.plan_annotations import check_no_secrets
from sizewright.executors.plan_checks import check_adjusts, check_cool_down, check_current, check_launches, check_same
from sizewright.executors.yaml_documents import to_yaml
from sizewright.spec import Allocation, Capabilities, ChangeCost, Handle, Job, Metrics, Outcome, Plan
from sizewright.spec._paths import absolute


class TrainingSession(Protocol):
    """The session of one job; the first `scale` starts the job, later ones change it live."""

    @property
    def allocation(self) -> Allocation | None: ...

    def scale(self, allocation: Allocation) -> None: ...
    def replace(self, name: str) -> str: ...
    def expect_memory(self, ps_bytes: int) -> None: ...
    def rebalance(self) -> None: ...
    def observe(self) -> Metrics: ...
    def wait(self, timeout_s: float | None = None) -> bool: ...
    def outcome(self) -> Outcome: ...
    def stop(self) -> None: ...


_FIRST_STEP_TIMEOUT_S, _POLL_S = 10.0, 0.01


@dataclass
class _Run:
    """One job: its session, the plans that were applied, and, once it has ended, its outcome."""

    handle: Handle
    session: TrainingSession
    applied_at: float
    plans: list[Plan]
    """The applied plans, the last one at `applied_at`."""
    outcome: Outcome | None = None

    def has_applied(self, plan: Plan) -> bool:
        """Return whether the plan was applied already. Raises InputError where its id belongs to another change."""
        applied = next((each for each in self.plans if (each.id, each.kind) == (plan.id, plan.kind)), None)
        if applied is None:
            return False
        check_same(plan, applied.target, plan.target)
        check_same(plan, (applied.migrate, applied.rebalance), (plan.migrate, plan.rebalance), "migrations")
        return True


class SessionExecutor:
    """Train jobs in sessions of this process; a handle is valid only in the process that launched the job.

    `samples` replaces the job's number of samples. `folder` receives a snapshot every `snapshot_s` seconds, from which
    `resume` continues. A replica that does not answer for `hang_s` seconds is replaced. `clock` counts seconds.
    """

    name: str
    capabilities = Capabilities(
        launch=True, adjust=True, live=True, migrate=True, rebalance=True, observe=True, stop=True, render=True
    )

    def __init__(
        self,
        *,
        samples: int | None = None,
        snapshot_s: float | None = 10.0,
        folder: str | Path | None = None,
        resume: str | Path | None = None,
        hang_s: float = 30.0,
        timeout_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.change_costs = ChangeCosts(SESSION_PRIORS)
        self._samples = samples
        paths = {"folder": folder, "resume": resume}
        paths = {name: path if path is None else absolute(path) for name, path in paths.items()}
        self._options: dict[str, Any] = {"snapshot_s": snapshot_s, **paths}
        self._options |= {"timeout_s": timeout_s, "hang_s": hang_s, "recover": True}
        self._clock = clock
        self._runs: dict[str, _Run] = {}

    def launch(self, plan: Plan) -> Handle:
        """Start a session at the plan's target and return once it trains; leave nothing behind where that fails.

        A plan whose job is running already is not launched twice.
        """
        check_launches(plan)
        for run in self._runs.values():
            if run.outcome is None and run.handle.job == plan.job.name and run.has_applied(plan):
                return run.handle
        started = self._clock()
        session = self._open(plan.job)
        try:
            session.scale(plan.target)
        except BaseException:
            session.stop()
            raise
        now = self._clock()
        self.change_costs.add(plan, now - started)
        handle = Handle(executor=self.name, id=self._new_id(plan), job=plan.job.name)
        self._runs[handle.id] = _Run(handle, session, now, [plan])
        return handle

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Change the job to the plan's target while it trains on, then migrate replicas, then rebalance look-ups.

        The seconds until the first step after the change are added to `change_costs`. A plan that was applied already
        changes nothing. Raises InputError for a plan that does not fit the job's current allocation, or during the
        cool-down.
        """
        run = self._running(handle)
        if plan.kind == "adjust" and plan.job.name == handle.job and run.has_applied(plan):
            return
        self._check_adjust(run, handle, plan)
        if plan.model_copy(update={"current": run.session.allocation}).changes_nothing:
            return
        started = self._clock()
        check_cool_down(plan, run.applied_at + run.plans[-1].cooldown_s, started)
        if plan.target != run.session.allocation:
            run.session.scale(plan.target)
        for name in plan.migrate:
            run.session.replace(name)
        if plan.rebalance:
            run.session.rebalance()
        run.applied_at = self._clock()
        run.plans.append(plan)
        if self._wait_for_step(run.session):
            self.change_costs.add(plan, self._clock() - started)

    def observe(self, handle: Handle) -> Metrics:
        """Return the counters of every replica, and the allocation."""
        session = self._running(handle).session
        return session.observe().model_copy(update={"allocation": session.allocation})

    def expect_memory(self, handle: Handle, ps_bytes: int) -> None:
        """Set the memory with which a PS restarts after it ran out of memory.

        Raises InputError for a job that does not run.
        """
        self._running(handle).session.expect_memory(ps_bytes)

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds for the end of the job; return whether it has ended, completed or failed."""
        run = self._known(handle)
        if run.outcome:
            return True
        try:
            return run.session.wait(timeout_s) or run.session.outcome().status != "running"
        except SizewrightError:
            if run.session.outcome().status == "failed":
                return True
            raise

    def stop(self, handle: Handle) -> Outcome:
        """End the job with all its processes; a second stop returns the same outcome."""
        run = self._known(handle)
        if run.outcome is None:
            run.session.stop()
            run.outcome = run.session.outcome()
        return run.outcome

    def render(self, plan: Plan) -> str:
        """Return a plan of any kind as YAML, which `load_plan` reads back.

        Raises InputError for a secret in a command's words.
        """
        check_no_secrets(plan)
        return to_yaml(self._header(plan), plan.model_dump(mode="json", exclude_none=True))

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return the estimated seconds until the first step after the change, from the changes of its kind measured so
        far.

        0 where nothing changes.
        """
        return self.change_costs.estimate(plan)

    def _wait_for_step(self, session: TrainingSession) -> bool:
        """Wait for a step after a change; return whether one was done before the job ended or the time ran out."""
        with suppress(SizewrightError):  # the change was made; the next observation raises the error
            before, deadline = _steps(session), self._clock() + _FIRST_STEP_TIMEOUT_S
            while not session.wait(_POLL_S) and self._clock() < deadline:
                if _steps(session) > before:
                    return True
        return False

    def _open(self, job: Job) -> TrainingSession:
        """Return a session that has not started. The engine is imported here: rendering needs neither torch nor ray."""
        if job.command:
            return self._open_command(job)
        from sizewright.training.session import Session

        return Session(job, samples=self._samples or job.samples, **self._options)

    def _open_command(self, job: Job) -> TrainingSession:
        from sizewright.training.command.session import CommandSession

        if self._options["folder"] or self._options["resume"]:
            raise InputError(
                "Snapshots are for jobs without a command; a command writes its own checkpoints.",
                "Leave out folder and resume; the command receives SIGTERM when it should write a checkpoint.",
            )
        if self._samples:
            job = job.with_samples(self._samples)
        return CommandSession(job, address=self._options.get("address"))

    def _new_id(self, plan: Plan) -> str:
        return f"{plan.job.name}-{uuid.uuid4().hex[:8]}"

    def _constructor_call(self) -> str:
        """Return the code that makes this executor, for the header of a rendered plan."""
        return f'get_executor("{self.name}")'

    def _known(self, handle: Handle) -> _Run:
        if handle.executor != self.name or handle.id not in self._runs:
            raise InputError(
                f"The {self.name} executor of this process has no job {handle.id} of executor '{handle.executor}'.",
                "Use a handle that its launch returned.",
            )
        return self._runs[handle.id]

    def _running(self, handle: Handle) -> _Run:
        run = self._known(handle)
        if run.outcome:
            raise InputError(
                f"Job {handle.id} was stopped ({run.outcome.status}).", "Launch it again to continue training."
            )
        return run

    def _check_adjust(self, run: _Run, handle: Handle, plan: Plan) -> None:
        check_adjusts(plan, handle)
        if plan.migrate:
            self._check_migrate(run, plan)
        if plan.rebalance:
            self._check_rebalance(plan)
        current = run.session.allocation
        check_current(plan, plan.current == current, current.describe() if current else "no replicas yet")

    def _check_migrate(self, run: _Run, plan: Plan) -> None:
        if plan.job.command:
            raise InputError(
                f"Plan {plan.id} migrates replicas of a command, but any change restarts all of them.",
                "Leave migrate out.",
            )
        names = {replica.name for replica in run.session.observe().replicas}
        if unknown := sorted(set(plan.migrate) - names):
            raise InputError(
                f"Plan {plan.id} migrates {', '.join(unknown)}, but {plan.job.name} has {', '.join(sorted(names))}.",
                "Make a new plan from the current allocation.",
            )

    def _check_rebalance(self, plan: Plan) -> None:
        if plan.job.command:
            raise InputError(
                f"Plan {plan.id} rebalances the PS of a command, but a command places its rows itself.",
                "Leave rebalance out.",
            )
        if plan.target.replicas("ps") < 2:
            raise InputError(
                f"Plan {plan.id} rebalances look-ups, but its target has fewer than two PS.",
                "Leave rebalance out, or plan two PS or more.",
            )

    def _header(self, plan: Plan) -> list[str]:
        lines = [f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}", f"Why: {plan.reason}", ""]
        if plan.kind != "launch":
            return [
                *lines,
                f"Apply it to the running job: {self._constructor_call()}.adjust(handle, load_plan(...))",
                "",
            ]
        return [
            *lines,
            "To run it: sizewright run this-file.yaml, or in Python (pip install 'sizewright[profile]'):",
            "    from sizewright.executors import get_executor",
            "    from sizewright.executors.session.local import load_plan",
            f"    executor = {self._constructor_call()}",
            '    handle = executor.launch(load_plan("this-file.yaml"))  # starts training',
            "    print(executor.observe(handle))",
            "    print(executor.stop(handle))",
            "",
        ]


def _steps(session: TrainingSession) -> int:
    return sum(worker.steps for worker in session.observe().of("worker"))
