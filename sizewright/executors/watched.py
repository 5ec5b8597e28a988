"""Which job a loop of its own process is to watch, and what of it may be changed from there."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.attached import Attached, find_run
from sizewright.executors.change_costs import LIVE_PRIOR
from sizewright.executors.prometheus_metrics import PrometheusObserver
from sizewright.executors.registry import unsupported
from sizewright.executors.replay import Replay
from sizewright.executors.run import Running
from sizewright.executors.tuning import Tuning
from sizewright.spec import ChangeCost, Handle, Job
from sizewright.spec._paths import absolute


@dataclass
class Watched:
    """A job that something else runs."""

    running: Running
    times: dict[str, Any] = field(default_factory=dict)
    """How its loop is to count time, where not as this process does."""

    def how(self, asked: Tuning) -> Tuning:
        """The loop as it can be: one that can change nothing makes a dry run; the one that may is attached now."""
        executor = self.running.executor
        if not isinstance(executor, Attached):
            return asked.model_copy(update={"dry_run": True})
        if not asked.dry_run:
            if not executor.capabilities.adjust:
                raise unsupported(self.running.handle.executor, "adjust")
            executor.attach()
        return asked


@contextmanager
def watched(
    job: Job | str | Path, *, replay: str | Path | None, change_s: float | None, prometheus: str | None
) -> Iterator[Watched]:
    """A replay, what a Prometheus tells, or what runs on this host by that name, job file or handle id."""
    if replay is not None and prometheus is not None:
        raise InputError("A replay is not read from a Prometheus.", "Leave one of them out.")
    if change_s is not None and replay is None:
        raise InputError("What a change costs is told for replays only.", "Leave out change_s.")
    if change_s is not None and not 0 <= change_s < math.inf:
        raise InputError(f"A change does not cost {change_s:g} s.", "Give 0 or more.")
    if replay is not None:
        yield _replayed(_loaded(job), replay, change_s)
    elif prometheus is not None:
        yield _told_by(_loaded(job), prometheus)
    else:
        with attached_to(job) as run:
            status = run.status
            yield Watched(Running(run, status.handle, status.job, status.allocation))


def attached_to(job: Job | str | Path) -> Attached:
    """The run of a job on this host, by its name, file or handle id. Raises InputError unless there is just one."""
    is_file = not isinstance(job, Job) and Path(absolute(job)).is_file()
    return find_run(_loaded(job).name if is_file or isinstance(job, Job) else str(job))


def _loaded(job: Job | str | Path) -> Job:
    return job if isinstance(job, Job) else Job.load(job)


def _replayed(job: Job, path: str | Path, change_s: float | None) -> Watched:
    change = LIVE_PRIOR if change_s is None else ChangeCost(seconds=change_s, lower=change_s, upper=change_s)
    replay = Replay.load(path, change)
    handle = Handle(executor=replay.name, id=f"{job.name}-replay-{uuid.uuid4().hex[:8]}", job=job.name)
    running = Running(replay, handle, job, replay.allocation, replay.clock)
    return Watched(running, {"clock": replay.clock, "now": replay.now, "at_once": True})


def _told_by(job: Job, url: str) -> Watched:
    observer = PrometheusObserver(url, job.name)
    handle = observer.handle()
    allocation = observer.observe(handle).allocation
    if allocation is None:
        raise InputError(f"Prometheus at {url} tells no allocation of {job.name}.", "Its executor must know it.")
    running = Running(observer, handle, job, allocation, observer.clock)
    return Watched(running, {"clock": observer.clock})
