"""Find and watch a job that another process runs: a live run, a replay, or one behind Prometheus."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.change_costs import LIVE_PRIOR
from sizewright.executors.registry import unsupported
from sizewright.recommender.control.controller import Controller
from sizewright.runtime.prometheus_metrics import PrometheusObserver
from sizewright.runtime.remote_run import RemoteRun, find_run
from sizewright.runtime.replay import ReplayExecutor
from sizewright.runtime.run import MetricsCallback, Running, log_errors
from sizewright.runtime.tuning import Tuning
from sizewright.spec import ChangeCost, Handle, Job
from sizewright.spec._paths import absolute


@dataclass
class Watched:
    """A job that another process runs, or ran."""

    running: Running
    times: dict[str, Any] = field(default_factory=dict)
    """Clock options of its control loop, where the time is not that of this process."""

    def attach(self, settings: Tuning) -> Tuning:
        """Attach to the run unless it is only observed; return the settings, with a dry run for what only observes."""
        executor = self.running.executor
        if not isinstance(executor, RemoteRun):
            return settings.model_copy(update={"dry_run": True})
        if not settings.dry_run:
            if not executor.capabilities.adjust:
                raise unsupported(self.running.handle.executor, "adjust")
            executor.attach()
        return settings


@contextmanager
def job_to_watch(
    job: Job | str | Path, *, replay: str | Path | None, change_s: float | None, prometheus: str | None
) -> Iterator[Watched]:
    """Yield a replayed run, a job that Prometheus scrapes, or a run on this host by job name, job file or handle id.

    `change_s` is the cost of a change in a replay. Raises InputError for options that do not fit together.
    """
    if replay is not None and prometheus is not None:
        raise InputError("A job is either replayed or read from Prometheus, not both.", "Leave out one of them.")
    if change_s is not None and replay is None:
        raise InputError("The cost of a change (change_s) is an option of replays only.", "Leave it out.")
    if change_s is not None and not 0 <= change_s < math.inf:
        raise InputError(f"The cost of a change must be a finite number of seconds, 0 or more, got {change_s:g}.")
    if replay is not None:
        yield _from_replay(_loaded(job), replay, change_s)
    elif prometheus is not None:
        yield _from_prometheus(_loaded(job), prometheus)
    else:
        with attached_to(job) as run:
            status = run.status
            yield Watched(Running(run, status.handle, status.job, status.allocation))


def attached_to(job: Job | str | Path) -> RemoteRun:
    """Return the run of a job on this host, by its name, file or handle id.

    Raises InputError unless there is exactly one.
    """
    is_file = not isinstance(job, Job) and Path(absolute(job)).is_file()
    return find_run(_loaded(job).name if is_file or isinstance(job, Job) else str(job))


def watch(
    running: Running,
    controller: Controller,
    *,
    callbacks: Sequence[MetricsCallback] = (),
    on_error: Callable[[Exception], None] = lambda _: None,
) -> None:
    """Let the control loop of a job take its turns until the job ends; `on_error` receives why a turn failed."""
    safe_callbacks = [log_errors(callback) for callback in (running.on_metrics, *callbacks)]
    ended = False
    while not ended:
        try:
            running.turn(controller)
        except Exception as error:
            if running.executor.wait(running.handle, 0):
                return
            on_error(error)
        if controller.latest:
            for callback in safe_callbacks:
                callback(controller.latest)
        ended = running.executor.wait(running.handle, controller.turn_s)


def _loaded(job: Job | str | Path) -> Job:
    return job if isinstance(job, Job) else Job.load(job)


def _from_replay(job: Job, path: str | Path, change_s: float | None) -> Watched:
    change = LIVE_PRIOR if change_s is None else ChangeCost(seconds=change_s, lower=change_s, upper=change_s)
    replay = ReplayExecutor.load(path, change)
    handle = Handle(executor=replay.name, id=f"{job.name}-replay-{uuid.uuid4().hex[:8]}", job=job.name)
    running = Running(replay, handle, job, replay.allocation, replay.clock)
    return Watched(running, {"clock": replay.clock, "now": replay.now, "at_once": True})


def _from_prometheus(job: Job, url: str) -> Watched:
    observer = PrometheusObserver(url, job.name)
    handle = observer.handle()
    allocation = observer.observe(handle).allocation
    if allocation is None:
        raise InputError(
            f"Prometheus at {url} has no allocation of job {job.name}.",
            "Run it with an executor that reports its allocation.",
        )
    running = Running(observer, handle, job, allocation, observer.clock)
    return Watched(running, {"clock": observer.clock})
