"""Measure one trial of a job that runs elsewhere, from the logs of its replicas."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sizewright.container import ContainerUsage
from sizewright.datasets.trials.trial import Trial
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_command import is_long_enough, trial_row
from sizewright.profiler.measure.steady_state import find_steady
from sizewright.profiler.series._base import TrialPoint
from sizewright.progress import Reading, read_line
from sizewright.spec import Job, Metrics, ReplicaLog, ReplicaMetrics
from sizewright.spec.command import Progress
from sizewright.training.command.reports import Reports, add_up, counters


class _Report(NamedTuple):
    at_s: float
    reading: Reading
    usage: ContainerUsage = ContainerUsage()


_History = list[list[_Report]]
"""What a replica has reported: the reports of each of its processes, in order."""


def measure_logs(job: Job, point: TrialPoint, logs: Sequence[ReplicaLog], timing: Timing) -> Trial | None:
    """Return the trial at a point; None while the job is not steady, not measured for long enough, or not complete.

    A job without a command reports by `log_samples`.
    """
    if any(sum(log.role == role for log in logs) != point.allocation.replicas(role) for role in ("worker", "ps")):
        return None
    progress = job.command.progress if job.command else Progress()
    histories = [_history(log, progress, point.allocation.batch_size) for log in logs]
    trains = [
        history for log, history in zip(logs, histories, strict=True) if history and log.role in ("chief", "worker")
    ]
    counts_job = progress.log_counts_job
    if counts_job and trains:
        trains = [max(trains, key=lambda history: history[0][-1].reading.samples)]
    elif len(trains) < sum(log.role == "worker" for log in logs):
        return None
    series = [[(each.at_s, each.reading.samples) for each in reports] for history in trains for reports in history]
    start_s = min((reports[0][0] for reports in series), default=0.0)
    steady = find_steady(series, start_s)
    if steady is None or not is_long_enough(steady, timing):
        return None
    first, last = (
        Metrics(replicas=tuple(_at(at_s, log, each, steady.since_s) for log, each in zip(logs, histories, strict=True)))
        for at_s in (steady.since_s, steady.until_s)
    )
    row = trial_row(job, point, steady, first, last, counts_job=counts_job)
    return row.model_copy(update={"watched_s": max(0.0, steady.until_s - start_s)})


def _history(log: ReplicaLog, progress: Progress, batch_size: int) -> _History:
    if progress.source == "log_samples":
        by_process: dict[int, list[_Report]] = {}
        for line in filter(None, (read_line(text) for _, text in log.lines)):
            by_process.setdefault(line.process, []).append(_Report(line.reading.at_s, line.reading, line.usage))
        return list(by_process.values())
    read, reports = Reports(progress, batch_size, Path(tempfile.gettempdir())), []
    for at_s, text in log.lines:
        before = read.last
        read.line(text.strip(), at_s)
        if read.last is not before:
            reports.append(_Report(at_s, read.last))
    return [reports] if reports else []


def _at(at_s: float, log: ReplicaLog, history: _History, since_s: float) -> ReplicaMetrics:
    """Return the metrics of a replica at a time, between two reports of each process.

    Without reports of its container they are what the platform tells of it, with constant cores from `since_s` on.
    """
    reports = sorted((each for of_process in history for each in of_process), key=lambda each: each.at_s)
    usages = [(each.at_s, each.usage) for each in reports if each.usage.cpu_s is not None]
    so_far = [usage for when_s, usage in usages if when_s <= at_s] or [usage for _, usage in usages[:1]]
    memory = so_far[-1].memory_peak_bytes or so_far[-1].memory_bytes if so_far else log.memory_bytes
    cpu_s = _between(at_s, [(when_s, usage.cpu_s or 0.0) for when_s, usage in usages])
    readings = [_reading_at(at_s, of_process) for of_process in history]
    return ReplicaMetrics(
        role=log.role,
        index=log.index,
        at_s=at_s,
        cpu_s=cpu_s if usages else (log.cores or 0.0) * (at_s - since_s),
        throttled_s=_between(at_s, [(when_s, usage.throttled_s or 0.0) for when_s, usage in usages]),
        memory_peak_bytes=memory or 0,
        limited_by="cgroup",
        **counters(add_up(readings) if readings else Reading()),
    )


def _reading_at(at_s: float, reports: Sequence[_Report]) -> Reading:
    samples, steps, *seconds = (
        _between(at_s, [(each.at_s, each.reading[column]) for each in reports])
        for column in range(len(Reading._fields))
    )
    return Reading(round(samples), round(steps), *seconds)


def _between(at_s: float, points: Sequence[tuple[float, float]]) -> float:
    """Return the value at a time, interpolated between two points; 0 without any."""
    return float(np.interp(at_s, [at for at, _ in points], [value for _, value in points])) if points else 0.0
