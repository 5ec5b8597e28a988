"""What is kept of a run: how fast it went at each allocation and what it used, from looks at it now and then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sizewright.datasets.finished import FinishedJob, Stretch, Usage
from sizewright.spec import Allocation, Handle, LimitedBy, Metrics, Outcome, Plan, ReplicaMetrics
from sizewright.spec.allocation import Role


class Recorder:
    """Of one run. `clock` counts seconds; `look` each time that its executor tells its metrics."""

    def __init__(self, plan: Plan, handle: Handle, clock: Callable[[], float], started_at: datetime) -> None:
        self._plan, self._handle, self._clock, self._started_at = plan, handle, clock, started_at
        self._began = clock()
        self._stretches: list[Stretch] = []
        self._allocation = plan.target
        self._since: tuple[float, int] | None = None
        self._latest: tuple[float, int] | None = None
        self._limited_by: LimitedBy | None = None
        self._first: dict[str, ReplicaMetrics] = {}
        self._last: dict[str, ReplicaMetrics] = {}

    def look(self, metrics: Metrics | None) -> None:
        """Takes in where the run is. Time until its first samples is not counted to any stretch: it starts then."""
        if metrics is None:
            return
        if metrics.trains_s is not None:  # changes and failures of its outcome are counted from there
            self._began = self._clock() - metrics.trains_s
        if metrics.allocation:
            self._changed(metrics.allocation)
        for replica in metrics.replicas:
            last = self._last.get(replica.name)
            if last is None or replica.cpu_s < last.cpu_s:  # another process may have its name
                self._first[replica.name] = replica
            self._last[replica.name] = replica
        self._limited_by = metrics.limited_by or self._limited_by
        if metrics.samples_trained:
            self._latest = self._clock(), metrics.samples_trained
            self._since = self._since or self._latest

    def _changed(self, allocation: Allocation) -> None:
        """It goes on at another allocation from now on, if it is another."""
        if allocation != self._allocation:
            self._close()
            self._allocation, self._since, self._latest = allocation, None, None

    def finished(self, outcome: Outcome) -> FinishedJob:
        """All that is known of it, once it has ended."""
        self._close()
        job = self._plan.job.with_absolute_path()
        run = FinishedJob(
            id=f"{self._handle.id}-{self._started_at:%Y%m%d%H%M%S%f}",
            name=job.name,
            job_hash=job.hash,
            job=job,
            source="run",
            executor=self._handle.executor,
            started_at=self._started_at,
            stretches=tuple(self._stretches),
            outcome=outcome,
            worker=self._usage("worker"),
            ps=self._usage("ps"),
            expected=self._plan.expected,
            expected_by=self._plan.expected_by,
        )
        return run.model_copy(update={"outcome": outcome.model_copy(update={"samples_per_s": run.throughput})})

    def _close(self) -> None:
        """A stretch that was looked at only once is kept without its samples."""
        now = self._clock()
        at_s, since = self._stretches[-1].at_s + self._stretches[-1].duration_s if self._stretches else 0.0, self._since
        told = {"at_s": at_s, "duration_s": now - self._began - at_s, "allocation": self._allocation}
        told["limited_by"] = self._limited_by
        if since and self._latest and self._latest[0] > since[0]:
            told |= {"at_s": since[0] - self._began, "duration_s": self._latest[0] - since[0]}
            told["samples"] = max(0, self._latest[1] - since[1])
        self._stretches.append(Stretch.model_validate(told))

    def _usage(self, role: Role) -> Usage:
        last = [replica for replica in self._last.values() if replica.role == role]
        peaks = [replica.memory_peak_bytes for replica in last if replica.memory_peak_bytes]
        spans = [(replica, self._first[replica.name]) for replica in last]
        seconds = sum(late.at_s - early.at_s for late, early in spans)
        cpu = sum(late.cpu_s - early.cpu_s for late, early in spans)
        return Usage(memory_peak_bytes=max(peaks, default=None), cpu_used=cpu / seconds if seconds > 0 else None)
