"""An executor in its own package: each replica is a plain process on this host, without resource limits.

The package is complete: `test_contract.py` runs the contract of executors, and `pyproject.toml` registers the name. A
change restarts all processes, so the job continues from its own checkpoints.
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
    """A job: its plans, its processes by role and index, and the samples that it trained before the last restart."""

    plans: list[Plan]
    folder: Path
    applied_at: float = 0.0
    processes: dict[tuple[Role, int], subprocess.Popen[bytes]] = field(default_factory=dict)
    trained_before: int = 0
    outcome: Outcome | None = None

    @property
    def target(self) -> Allocation:
        """Return the target of the last plan."""
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
        """Start all replicas. If the plan was launched already, return the handle of that job."""
        if plan.kind != "launch":
            raise InputError(f"Plan {plan.id} does not launch a job.", "Pass it to `adjust`.")
        for run_id, run in self._runs.items():
            if run.outcome is None and _carried_out(run, plan):
                return Handle(executor=self.name, id=run_id, job=plan.job.name)
        run = Run([], Path(tempfile.mkdtemp(prefix="sizewright-processes-")))
        self._start(run, plan)
        handle = Handle(executor=self.name, id=f"{plan.job.name}-{uuid.uuid4().hex[:8]}", job=plan.job.name)
        self._runs[handle.id] = run
        return handle

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """End all replicas and start those of the target."""
        if plan.migrate or plan.rebalance:
            raise UnsupportedError(
                "This executor cannot migrate or rebalance.", "Make a plan without `migrate` and `rebalance`."
            )
        run = self._running(handle)
        if plan.kind == "launch" or plan.job.name != handle.job:
            raise InputError(f"Plan {plan.id} does not adjust {handle.job}.", f"Pass a plan that adjusts {handle.job}.")
        if plan.kind == "keep" or _carried_out(run, plan) or plan.target == run.target:
            return
        if plan.current not in (None, run.target):
            raise InputError(f"{handle.job} runs {run.target.describe()}.", "Make a plan for this allocation.")
        cooldown_left_s = run.applied_at + run.plans[-1].cooldown_s - self._clock()
        if cooldown_left_s > 0:
            raise InputError(f"The cool-down of {handle.job} ends in {cooldown_left_s:.0f} s.", "Adjust it then.")
        run.trained_before = self.observe(handle).samples_trained
        _end(run)
        self._start(run, plan)

    def observe(self, handle: Handle) -> Metrics:
        """Return the samples that the processes report with `log_samples`."""
        run = self._running(handle)
        replicas = tuple(_metrics(run, role, index) for role, index in run.processes)
        trained = run.trained_before + sum(replica.samples for replica in replicas)
        return Metrics(replicas=replicas, samples_trained=trained, allocation=run.target)

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Return True when all workers have finished or a replica has failed, and False after `timeout_s`."""
        run, until = self._known(handle), time.monotonic() + timeout_s
        while not (over := run.outcome is not None or _status(run) != "running") and time.monotonic() < until:
            time.sleep(0.05)
        return over

    def stop(self, handle: Handle) -> Outcome:
        """End all replicas and return the outcome."""
        run = self._known(handle)
        if run.outcome is None:
            status, trained = _status(run), self.observe(handle).samples_trained
            _end(run)
            shutil.rmtree(run.folder, ignore_errors=True)
            run.outcome = Outcome(status="stopped" if status == "running" else status, samples=trained)
        return run.outcome

    def render(self, plan: Plan) -> str:
        """Return the plan as YAML."""
        return yaml.safe_dump(plan.model_dump(mode="json", exclude_none=True), sort_keys=False)

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return the cost of a change, estimated from the starts so far."""
        return self.change_costs.estimate(plan)

    def _start(self, run: Run, plan: Plan) -> None:
        started_at = self._clock()
        run.plans.append(plan)
        command = plan.job.command.run if plan.job.command else plan.job.deploy.command
        for role in ROLES:
            for index in range(plan.target.replicas(role)):
                folder = _progress_folder(run, role, index)
                folder.mkdir()
                env = {VARIABLE: str(folder), "SIZEWRIGHT_ROLE": role, "SIZEWRIGHT_INDEX": str(index)}
                run.processes[role, index] = subprocess.Popen(command, env=os.environ | env)
        run.applied_at = self._clock()
        while not any(_metrics(run, *key).samples for key in run.processes) and _status(run) == "running":
            time.sleep(0.01)
        if _status(run) == "failed":
            _end(run)
            raise InputError(f"A replica of {plan.job.name} ended before it trained.", "See its output.")
        self.change_costs.add(plan, self._clock() - started_at)

    def _known(self, handle: Handle) -> Run:
        if handle.id not in self._runs:
            raise InputError(f"There is no job {handle.id}.", "Launch one and use its handle.")
        return self._runs[handle.id]

    def _running(self, handle: Handle) -> Run:
        run = self._known(handle)
        if run.outcome is not None:
            raise InputError(f"Job {handle.id} has ended.", "Launch it again.")
        return run


def _carried_out(run: Run, plan: Plan) -> bool:
    for earlier in run.plans:
        if (earlier.id, earlier.kind, earlier.job.name) == (plan.id, plan.kind, plan.job.name):
            if earlier.target != plan.target:
                raise InputError(f"Plan {plan.id} had another target before.", "Give the changed plan a new id.")
            return True
    return False


def _progress_folder(run: Run, role: Role, index: int) -> Path:
    return run.folder / f"{role}-{index}-{len(run.plans)}"


def _metrics(run: Run, role: Role, index: int) -> ReplicaMetrics:
    reports = read_progress(_progress_folder(run, role, index)).values()
    return ReplicaMetrics(
        role=role, index=index, at_s=time.monotonic(), cpu_s=0.0, throttled_s=0.0, memory_peak_bytes=0,
        samples=sum(report.samples for report in reports), steps=sum(report.steps for report in reports),
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
