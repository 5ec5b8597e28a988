"""An executor of one's own: each replica is a plain process of this host, with no limits of any kind.

It is complete: it keeps the contract of executors, which `test_contract.py` beside it holds it against, and is found by
name once the package is installed, since `pyproject.toml` registers it. A change ends all processes and starts them
anew, so that the job's own checkpoints are what it goes on from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from sizewright.errors import InputError, UnsupportedError
from sizewright.executors import SESSION_PRIORS, ChangeCosts
from sizewright.progress import VARIABLE, read_progress
from sizewright.spec import (
    ROLES,
    Allocation,
    Capabilities,
    ChangeCost,
    Handle,
    Metrics,
    Outcome,
    Plan,
    ReplicaMetrics,
    Role,
    Status,
)


@dataclass
class Run:
    """A job: its processes by role and number, and what it has trained in starts that are over."""

    plans: list[Plan]
    folder: Path
    applied_at: float = 0.0
    processes: dict[tuple[Role, int], subprocess.Popen[bytes]] = field(default_factory=dict)
    trained_before: int = 0
    outcome: Outcome | None = None

    @property
    def target(self) -> Allocation:
        """What it was brought to last."""
        return self.plans[-1].target


class ProcessesExecutor:
    """Starts `job.command.run`, else `job.deploy.command`, once for each replica."""

    name = "processes"
    capabilities = Capabilities(launch=True, adjust=True, observe=True, stop=True, render=True)

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.change_costs = ChangeCosts(SESSION_PRIORS)
        self._clock = clock
        self._runs: dict[str, Run] = {}

    def launch(self, plan: Plan) -> Handle:
        """Start all replicas; the job of this very plan is not started twice."""
        if plan.kind != "launch":
            raise InputError(f"Plan {plan.id} does not launch a job.", "Pass it to adjust.")
        for number, run in self._runs.items():
            if run.outcome is None and _carried_out(run, plan):
                return Handle(executor=self.name, id=number, job=plan.job.name)
        run = Run([], Path(tempfile.mkdtemp(prefix="sizewright-processes-")))
        self._start(run, plan)
        handle = Handle(executor=self.name, id=f"{plan.job.name}-{uuid.uuid4().hex[:8]}", job=plan.job.name)
        self._runs[handle.id] = run
        return handle

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """End all replicas and start those of the target."""
        if plan.migrate or plan.rebalance:
            raise UnsupportedError("Single processes are not replaced.", "Leave migrate and rebalance out.")
        run = self._running(handle)
        if plan.kind == "launch" or plan.job.name != handle.job:
            raise InputError(f"Plan {plan.id} does not adjust {handle.job}.", "Make one that does.")
        if plan.kind == "keep" or _carried_out(run, plan) or plan.target == run.target:
            return
        if plan.current not in (None, run.target):
            raise InputError(f"{handle.job} runs {run.target.describe()}.", "Make a plan of what runs.")
        left_s = run.applied_at + run.plans[-1].cooldown_s - self._clock()
        if left_s > 0:
            raise InputError(f"{handle.job} cools down for another {left_s:.0f} s.", "Wait.")
        run.trained_before = self.observe(handle).samples_trained
        _end(run)
        self._start(run, plan)

    def observe(self, handle: Handle) -> Metrics:
        """What the processes tell by `log_samples`."""
        run = self._running(handle)
        replicas = tuple(_metrics(run, role, number) for role, number in run.processes)
        trained = run.trained_before + sum(replica.samples for replica in replicas)
        return Metrics(replicas=replicas, samples_trained=trained, allocation=run.target)

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Whether all workers have ended, or any replica by an error."""
        run, until = self._known(handle), time.monotonic() + timeout_s
        while not (over := run.outcome is not None or _status(run) != "running") and time.monotonic() < until:
            time.sleep(0.05)
        return over

    def stop(self, handle: Handle) -> Outcome:
        """End all replicas."""
        run = self._known(handle)
        if run.outcome is None:
            status, trained = _status(run), self.observe(handle).samples_trained
            _end(run)
            shutil.rmtree(run.folder, ignore_errors=True)
            run.outcome = Outcome(status="stopped" if status == "running" else status, samples=trained)
        return run.outcome

    def render(self, plan: Plan) -> str:
        """The plan itself."""
        return yaml.safe_dump(plan.model_dump(mode="json", exclude_none=True), sort_keys=False)

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Learned from the starts so far."""
        return self.change_costs.estimate(plan)

    def _start(self, run: Run, plan: Plan) -> None:
        began = self._clock()
        run.plans.append(plan)
        words = plan.job.command.run if plan.job.command else plan.job.deploy.command
        for role in ROLES:
            for number in range(plan.target.replicas(role)):
                told = run.folder / f"{role}-{number}-{len(run.plans)}"
                told.mkdir()
                env = {VARIABLE: str(told), "SIZEWRIGHT_ROLE": role, "SIZEWRIGHT_INDEX": str(number)}
                run.processes[role, number] = subprocess.Popen(words, env=os.environ | env)
        run.applied_at = self._clock()
        while not any(_metrics(run, *key).samples for key in run.processes) and _status(run) == "running":
            time.sleep(0.01)
        if _status(run) == "failed":
            _end(run)
            raise InputError(f"A replica of {plan.job.name} ended before it trained.", "See what it printed.")
        self.change_costs.add(plan, self._clock() - began)

    def _known(self, handle: Handle) -> Run:
        if handle.id not in self._runs:
            raise InputError(f"There is no job {handle.id}.", "Launch it.")
        return self._runs[handle.id]

    def _running(self, handle: Handle) -> Run:
        run = self._known(handle)
        if run.outcome is not None:
            raise InputError(f"Job {handle.id} is over.", "Launch it again.")
        return run


def _carried_out(run: Run, plan: Plan) -> bool:
    for before in run.plans:
        if (before.id, before.kind, before.job.name) == (plan.id, plan.kind, plan.job.name):
            if before.target != plan.target:
                raise InputError(f"Plan {plan.id} brought other sizes.", "Give the changed plan an id of its own.")
            return True
    return False


def _metrics(run: Run, role: Role, number: int) -> ReplicaMetrics:
    told = read_progress(run.folder / f"{role}-{number}-{len(run.plans)}").values()
    return ReplicaMetrics(
        role=role, index=number, at_s=time.monotonic(), cpu_s=0.0, throttled_s=0.0, memory_peak_bytes=0,
        samples=sum(each.samples for each in told), steps=sum(each.steps for each in told),
    )  # fmt: skip


def _status(run: Run) -> Status:
    codes = {key: process.poll() for key, process in run.processes.items()}
    if any(codes.values()):
        return "failed"
    return "finished" if all(code == 0 for (role, _), code in codes.items() if role == "worker") else "running"


def _end(run: Run) -> None:
    for process in run.processes.values():
        process.terminate()
    for process in run.processes.values():
        process.wait()
    run.processes.clear()
