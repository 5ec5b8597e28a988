"""What `local` and `ray` share: plans carried out by a `Session`, live, while the job trains on."""

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
from sizewright.executors.manifest import to_yaml
from sizewright.executors.plan_notes import check_no_secrets
from sizewright.spec import Allocation, Capabilities, ChangeCost, Handle, Job, Metrics, Outcome, Plan
from sizewright.spec._paths import absolute


class TrainingSession(Protocol):
    """What is asked of a session; the first `scale` starts the job, later ones change it live."""

    @property
    def allocation(self) -> Allocation | None: ...  # noqa: D102

    def scale(self, allocation: Allocation) -> None: ...  # noqa: D102
    def replace(self, name: str) -> str: ...  # noqa: D102
    def expect_memory(self, ps_bytes: int) -> None: ...  # noqa: D102
    def rebalance(self) -> None: ...  # noqa: D102
    def observe(self) -> Metrics: ...  # noqa: D102
    def wait(self, timeout_s: float | None = None) -> bool: ...  # noqa: D102
    def outcome(self) -> Outcome: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


_FIRST_STEP_S, _LOOK_S = 10.0, 0.01


@dataclass
class _Run:
    """One job: its session, when its last plan was applied, and in the end what became of it."""

    handle: Handle
    session: TrainingSession
    applied_at: float
    plans: list[Plan]
    """Carried out, the last one at `applied_at`."""
    outcome: Outcome | None = None

    def carried_out(self, plan: Plan) -> bool:
        """Raises InputError where a plan of this id did something else."""
        same = next((each for each in self.plans if (each.id, each.kind) == (plan.id, plan.kind)), None)
        if same and (same.target, same.migrate, same.rebalance) != (plan.target, plan.migrate, plan.rebalance):
            raise InputError(
                f"Plan {plan.id} was carried out before, for {same.target.describe()}.",
                "Give the changed plan an id of its own.",
            )
        return same is not None


class SessionExecutor:
    """Trains jobs in sessions of this process: a handle is of use only in the process that launched it.

    `samples` trains that many instead of the job's own; `folder` keeps snapshots, one every `snapshot_s` seconds,
    for `resume`; a replica that does not answer for `hang_s` is replaced; `clock` counts seconds.
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
        """Start a session at the plan's target; returns once it trains, and leaves nothing when it cannot. The job of
        this very plan, while it runs, is not started twice."""
        if plan.kind != "launch":
            raise InputError(
                f"Plan {plan.id} is of kind '{plan.kind}' and cannot launch a job.",
                "Make a launch plan of its target, or pass it to adjust with the handle of the running job.",
            )
        for run in self._runs.values():
            if run.outcome is None and run.handle.job == plan.job.name and run.carried_out(plan):
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
        """Bring the job to the plan's target while it trains on, replace what is to migrate, then rebalance; how long
        that took, to the first step after it, is learned. Nothing, where this very plan was carried out.

        Raises InputError for a plan that is not for this job as it is now, or that comes within the cool-down.
        """
        run = self._running(handle)
        if plan.kind == "adjust" and plan.job.name == handle.job and run.carried_out(plan):
            return
        self._check_adjust(run, handle, plan)
        if plan.model_copy(update={"current": run.session.allocation}).changes_nothing:
            return
        started = self._clock()
        left_s = run.applied_at + run.plans[-1].cooldown_s - started
        if left_s > 0:
            raise InputError(
                f"Job {handle.job} is in the cool-down of its last plan for another {left_s:.0f} s.",
                f"Apply plan {plan.id} after that.",
            )
        if plan.target != run.session.allocation:
            run.session.scale(plan.target)
        for name in plan.migrate:
            run.session.replace(name)
        if plan.rebalance:
            run.session.rebalance()
        run.applied_at = self._clock()
        run.plans.append(plan)
        if self._stepped(run.session):
            self.change_costs.add(plan, self._clock() - started)

    def observe(self, handle: Handle) -> Metrics:
        """Sums of every replica, and what it runs at."""
        session = self._running(handle).session
        return session.observe().model_copy(update={"allocation": session.allocation})

    def expect_memory(self, handle: Handle, ps_bytes: int) -> None:
        """What a PS is forecast to need: one that memory ends comes back with that.

        Raises InputError for a job that does not run.
        """
        self._running(handle).session.expect_memory(ps_bytes)

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Whether the job has ended, trained in full or failed; waits at most `timeout_s` seconds for it."""
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
        """The plan as YAML, of whatever kind; `load_plan` reads it back. Raises InputError for a secret in a command's
        words."""
        check_no_secrets(plan)
        return to_yaml(self._header(plan), plan.model_dump(mode="json", exclude_none=True))

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Seconds until the first step after it, from launches, resizes, other live changes, or restarts of commands
        measured so far; 0 where nothing changes."""
        return self.change_costs.estimate(plan)

    def _stepped(self, session: TrainingSession) -> bool:
        """Once a step is done after a change; not where the job ends first, or tells of none for too long."""
        with suppress(SizewrightError):  # the change was made, and whoever looks next is told
            before, deadline = _steps(session), self._clock() + _FIRST_STEP_S
            while not session.wait(_LOOK_S) and self._clock() < deadline:
                if _steps(session) > before:
                    return True
        return False

    def _open(self, job: Job) -> TrainingSession:
        """A session that has not begun. The engine is loaded here: rendering needs neither torch nor ray."""
        if job.command:
            return self._open_command(job)
        from sizewright.training.session import Session

        return Session(job, samples=self._samples or job.samples, **self._options)

    def _open_command(self, job: Job) -> TrainingSession:
        from sizewright.training.command.session import CommandSession

        if self._options["folder"] or self._options["resume"]:
            raise InputError(
                "Snapshots are for jobs without a command: a command keeps its own.",
                "Leave folder and resume out; it is told by SIGTERM to write a checkpoint.",
            )
        if self._samples:
            job = job.with_samples(self._samples)
        return CommandSession(job, address=self._options.get("address"))

    def _new_id(self, plan: Plan) -> str:
        return f"{plan.job.name}-{uuid.uuid4().hex[:8]}"

    def _made_with(self) -> str:
        """How the header of a rendered plan makes this executor."""
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
            raise InputError(f"Job {handle.id} was stopped ({run.outcome.status}).", "Launch it again to train on.")
        return run

    def _check_adjust(self, run: _Run, handle: Handle, plan: Plan) -> None:
        if plan.kind == "launch":
            raise InputError(f"Plan {plan.id} launches a job and cannot adjust {handle.id}.", "Pass it to launch.")
        if plan.job.name != handle.job:
            raise InputError(
                f"Plan {plan.id} is for job {plan.job.name} and the handle for {handle.job}.",
                "Pass the handle of the plan's own job.",
            )
        if plan.migrate:
            self._check_migrate(run, plan)
        if plan.rebalance:
            self._check_rebalance(plan)
        now = run.session.allocation
        if plan.current is not None and plan.current != now:
            raise InputError(
                f"Plan {plan.id} was made for {plan.current.describe()} "
                f"and {handle.job} runs {now.describe() if now else 'nothing yet'}.",
                "Make a new plan from what runs now.",
            )

    def _check_migrate(self, run: _Run, plan: Plan) -> None:
        if plan.job.command:
            raise InputError(
                f"Plan {plan.id} migrates replicas of a command, all of which start anew with any change.",
                "Leave migrate out.",
            )
        names = {replica.name for replica in run.session.observe().replicas}
        if strangers := sorted(set(plan.migrate) - names):
            raise InputError(
                f"Plan {plan.id} migrates {', '.join(strangers)}, and {plan.job.name} has {', '.join(sorted(names))}.",
                "Make a new plan from what runs now.",
            )

    def _check_rebalance(self, plan: Plan) -> None:
        if plan.job.command:
            raise InputError(
                f"Plan {plan.id} rebalances the PS of a command, which spreads its rows itself.",
                "Leave rebalance out.",
            )
        if plan.target.replicas("ps") < 2:
            raise InputError(
                f"Plan {plan.id} rebalances look-ups and its target has no second PS to take any.",
                "Leave rebalance out, or have two PS or more.",
            )

    def _header(self, plan: Plan) -> list[str]:
        lines = [f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}", f"Why: {plan.reason}", ""]
        if plan.kind != "launch":
            return [*lines, f"Apply it to the running job: {self._made_with()}.adjust(handle, load_plan(...))", ""]
        return [
            *lines,
            "To run it: sizewright run this-file.yaml, or in Python (pip install 'sizewright[profile]'):",
            "    from sizewright.executors import get_executor",
            "    from sizewright.executors.local import load_plan",
            f"    executor = {self._made_with()}",
            '    handle = executor.launch(load_plan("this-file.yaml"))  # it trains from here on',
            "    print(executor.observe(handle))",
            "    print(executor.stop(handle))",
            "",
        ]


def _steps(session: TrainingSession) -> int:
    return sum(worker.steps for worker in session.observe().of("worker"))
