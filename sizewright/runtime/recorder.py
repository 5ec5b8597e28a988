"""Record a run from its observations: the speed at each allocation, and the resources used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
from sizewright.spec import Handle, LimitedBy, Metrics, Outcome, Plan, ReplicaMetrics
from sizewright.spec.allocation import Role


class Recorder:
    """The record of one run; `clock` counts seconds, `on_metrics` is called with each observation."""

    def __init__(self, plan: Plan, handle: Handle, clock: Callable[[], float], started_at: datetime) -> None:
        self._plan = plan
        self._handle = handle
        self._clock = clock
        self._started_at = started_at
        self._began = clock()
        self._segments: list[Segment] = []
        self._allocation = plan.target
        self._since: tuple[float, int] | None = None
        self._latest: tuple[float, int] | None = None
        self._limited_by: LimitedBy | None = None
        self._first: dict[str, ReplicaMetrics] = {}
        self._last: dict[str, ReplicaMetrics] = {}

    def on_metrics(self, metrics: Metrics | None) -> None:
        """Take in an observation. A segment starts with its first samples: the time before is not counted."""
        if metrics is None:
            return
        if metrics.trains_s is not None:  # the outcome counts the times of changes and failures from there
            self._began = self._clock() - metrics.trains_s
        if metrics.allocation and metrics.allocation != self._allocation:
            self._close()
            self._allocation = metrics.allocation
            self._since = None
            self._latest = None
        for replica in metrics.replicas:
            last = self._last.get(replica.name)
            if last is None or replica.cpu_s < last.cpu_s:  # another process with the same name
                self._first[replica.name] = replica
            self._last[replica.name] = replica
        self._limited_by = metrics.limited_by or self._limited_by
        if metrics.samples_trained:
            self._latest = self._clock(), metrics.samples_trained
            self._since = self._since or self._latest

    def finished(self, outcome: Outcome) -> FinishedJob:
        """Return the record of the run, once it has ended."""
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
            stretches=tuple(self._segments),
            outcome=outcome,
            worker=self._usage("worker"),
            ps=self._usage("ps"),
            expected=self._plan.expected,
            expected_by=self._plan.expected_by,
        )
        return run.model_copy(update={"outcome": outcome.model_copy(update={"samples_per_s": run.throughput})})

    def _close(self) -> None:
        """End the current segment; one with fewer than two observations of samples is kept without its samples."""
        last = self._segments[-1] if self._segments else None
        at_s = last.at_s + last.duration_s if last else 0.0
        fields = {
            "at_s": at_s,
            "duration_s": self._clock() - self._began - at_s,
            "allocation": self._allocation,
            "limited_by": self._limited_by,
        }
        if self._since and self._latest and self._latest[0] > self._since[0]:
            (since_s, first_samples), (latest_s, latest_samples) = self._since, self._latest
            fields["at_s"] = since_s - self._began
            fields["duration_s"] = latest_s - since_s
            fields["samples"] = max(0, latest_samples - first_samples)
        self._segments.append(Segment.model_validate(fields))

    def _usage(self, role: Role) -> JobUsage:
        last = [replica for replica in self._last.values() if replica.role == role]
        peaks = [replica.memory_peak_bytes for replica in last if replica.memory_peak_bytes]
        spans = [(replica, self._first[replica.name]) for replica in last]
        seconds = sum(late.at_s - early.at_s for late, early in spans)
        cpu = sum(late.cpu_s - early.cpu_s for late, early in spans)
        return JobUsage(memory_peak_bytes=max(peaks, default=None), cpu_used=cpu / seconds if seconds > 0 else None)
