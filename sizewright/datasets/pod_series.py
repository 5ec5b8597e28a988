"""Finished jobs out of the series of their pods: who ran when, what they used, and whether memory ended one.

Metrics have cAdvisor's names. Which pod is which replica of which job is read from its name, as Kubeflow's training
operator gives it: JOB-worker-0, JOB-ps-1.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.finished import FinishedJob, Stretch, Usage
from sizewright.datasets.prometheus import Prometheus, Series
from sizewright.errors import InputError
from sizewright.how_far import steps
from sizewright.spec import Allocation, Failure, Group, Job, Outcome

Floats = NDArray[np.float64]
_LOG = logging.getLogger(__name__)

POD_NAME = r"(?P<job>.+)-(?P<role>worker|ps|chief|evaluator)-(?P<index>\d+)"
_ROLES = ("worker", "ps", "chief", "evaluator")
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
QUOTA, PERIOD = "container_spec_cpu_quota", "container_spec_cpu_period"
MEMORY_LIMIT, OOM = "container_spec_memory_limit_bytes", "container_oom_events_total"
_NO_LIMIT_BYTES = 1 << 60
_GAP_STEPS = 5


class _Pod(NamedTuple):
    """One replica: its metrics (by name), each at `times` (n,)."""

    namespace: str
    job: str
    role: str
    name: str
    metrics: dict[str, tuple[Floats, Floats]]

    @property
    def times(self) -> Floats:
        return self.metrics[MEMORY][0]

    def between(self, first: float, after: float) -> _Pod:
        """What was seen of it from `first` on, before `after`."""
        inside = {name: (t >= first) & (t < after) for name, (t, _) in self.metrics.items()}
        return self._replace(
            metrics={name: (t[inside[name]], v[inside[name]]) for name, (t, v) in self.metrics.items()}
        )

    def last(self, metric: str, missing: float = 0.0) -> float:
        values = self.metrics.get(metric, (np.empty(0), np.empty(0)))[1]
        return float(values[-1]) if len(values) else missing

    @property
    def cpu_seconds(self) -> tuple[float, float]:
        """Used, and over how long; a counter that falls began anew."""
        times, values = self.metrics.get(CPU, (np.empty(0), np.empty(0)))
        if len(times) < 2:
            return 0.0, 0.0
        rises = np.diff(values)
        return float(np.where(rises >= 0, rises, values[1:]).sum()), float(times[-1] - times[0])

    @property
    def group(self) -> tuple[float, int]:
        """Cores and bytes that it was given; cores that it used at most where it had no quota."""
        period, limit = self.last(PERIOD), self.last(MEMORY_LIMIT)
        quota = self.last(QUOTA)
        used, seconds = self.cpu_seconds
        cores = quota / period if period > 0 and quota > 0 else max(used / seconds if seconds else 0.0, 0.01)
        return round(cores, 3), int(limit) if 0 < limit < _NO_LIMIT_BYTES else 0


def jobs_of_pods(
    prometheus: Prometheus,
    start: float,
    end: float,
    *,
    step_s: float = 30.0,
    namespace: str | None = None,
    pod_name: str = POD_NAME,
    job: Job | None = None,
) -> list[FinishedJob]:
    """Jobs whose pods were all gone before `end` (seconds since 1970), the first that began first.

    Where no pod of a job was seen for five steps, its next run begins. Runs that were there at `start` are left out,
    since nobody knows when they began.

    `job` describes those that have its name; `pod_name` is a regular expression with the groups job, role and index.
    Throughput is not known of them. Raises StoreError where Prometheus does not answer, InputError for a pattern that
    cannot be used.
    """
    pattern = _pattern(pod_name)
    start = step_s * (start // step_s)  # on a grid that stays, so that a run has the same id whenever it is asked for
    where = f'{{container!="",container!="POD"{f",namespace={json.dumps(namespace)}" if namespace else ""}}}'
    window = f"[{max(int(step_s), 1)}s]"
    queries = {name: f"{name}{where}" for name in (CPU, QUOTA, PERIOD, MEMORY_LIMIT, OOM)}
    queries[MEMORY] = f"max_over_time({MEMORY}{where}{window})"
    asked = steps("asking Prometheus", queries.items())
    found = {name: prometheus.series(query, start, end, step_s) for name, query in asked}
    pods = [pod for pod in _pods(found, pattern) if MEMORY in pod.metrics]
    grouped = itertools.groupby(sorted(pods, key=_key), key=_key)
    runs = [_finished(run, step_s, job) for _, group in grouped for run in _runs([*group], step_s)]
    ended = [run for run, last in runs if last < end - 2 * step_s]
    whole = [run for run in ended if run.started_at and run.started_at.timestamp() > start]
    if len(whole) < len(ended):
        _LOG.warning("%d runs had begun before: look further back to have them whole.", len(ended) - len(whole))
    return sorted(whole, key=lambda run: run.started_at or datetime.min.replace(tzinfo=timezone.utc))


def _pattern(pod_name: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(pod_name)
    except re.error as error:
        raise InputError(f"{pod_name!r} is no regular expression: {error}.", f"Such as {POD_NAME}") from None
    missing = {"job", "role", "index"} - set(pattern.groupindex)
    if missing:
        raise InputError(f"{pod_name!r} lacks the groups {', '.join(sorted(missing))}.", f"Such as {POD_NAME}")
    return pattern


def _runs(pods: list[_Pod], step_s: float) -> Iterator[list[_Pod]]:
    """Pods of one name, apart where none was seen for a while."""
    times = np.unique(np.concatenate([pod.times for pod in pods]))
    cuts = [-np.inf, *times[1:][np.diff(times) > _GAP_STEPS * step_s], np.inf]
    for first, after in itertools.pairwise(cuts):
        parts = [pod.between(first, after) for pod in pods]
        yield [part for part in parts if len(part.times)]


def _key(pod: _Pod) -> tuple[str, str]:
    return pod.namespace, pod.job


def _pods(found: dict[str, list[Series]], pattern: re.Pattern[str]) -> Iterator[_Pod]:
    pods: dict[tuple[str, str], _Pod] = {}
    for metric, told in found.items():
        for series in told:
            name, namespace = series.labels.get("pod", ""), series.labels.get("namespace", "")
            match = pattern.fullmatch(name)
            if match is None or match["role"] not in _ROLES or not len(series.times):
                continue
            made = _Pod(namespace, match["job"], match["role"], name, {})
            metrics = pods.setdefault((namespace, name), made).metrics
            metrics[metric] = _summed(metrics.get(metric), series)
    yield from pods.values()


def _summed(before: tuple[Floats, Floats] | None, series: Series) -> tuple[Floats, Floats]:
    """Containers of a pod together, at the times that any has."""
    if before is None:
        return series.times, series.values
    times = np.union1d(before[0], series.times)
    total = sum(
        np.where(np.isin(times, t), np.interp(times, t, v), 0.0) for t, v in (before, (series.times, series.values))
    )
    return times, np.asarray(total)


def _finished(pods: list[_Pod], step_s: float, job: Job | None) -> tuple[FinishedJob, float]:
    """The run, and when it was last seen."""
    began, last = min(pod.times[0] for pod in pods), max(pod.times[-1] for pod in pods)
    name = pods[0].job
    mine = job if job and job.name == name else None
    oom = [pod for pod in pods if _rose(pod)]
    failures = tuple(Failure(at_s=float(p.times[-1] - began), replica=p.name, cause="oom") for p in oom)
    ended_by = [pod for pod in oom if pod.times[-1] >= last - 2 * step_s]
    outcome = Outcome(
        status="failed" if ended_by else "finished", duration_s=float(last - began), failures=failures,
        message=f"{ended_by[0].name} ran out of memory at the end." if ended_by else "",
    )  # fmt: skip
    started_at = datetime.fromtimestamp(began, timezone.utc)
    told = FinishedJob(
        id=f"{pods[0].namespace}/{name}@{started_at:%Y%m%dT%H%M%S}", name=name, job=mine, source="prometheus",
        executor="kubernetes", started_at=started_at, outcome=outcome,
        stretches=tuple(_stretches(pods, began, last, mine.training.batch_size if mine else 1)),
        worker=_usage(pods, "worker"), ps=_usage(pods, "ps"),
    )  # fmt: skip
    return told, float(last)


def _rose(pod: _Pod) -> bool:
    values = pod.metrics.get(OOM, (np.empty(0), np.empty(0)))[1]
    return bool(len(values) and values.max() > 0)


def _stretches(pods: list[_Pod], began: float, last: float, batch_size: int) -> Iterator[Stretch]:
    """Times at which the same pods ran, one after the other; those without a worker are passed over."""
    times = np.unique(np.concatenate([pod.times for pod in pods]))
    alive = [tuple(pod.times[0] <= at <= pod.times[-1] for pod in pods) for at in times]
    for there, group in itertools.groupby(zip(times, alive, strict=True), key=lambda pair: pair[1]):
        at = [time for time, _ in group]
        after = times[times > at[-1]]
        until = float(after[0]) if len(after) else last
        running = [pod for pod, up in zip(pods, there, strict=True) if up]
        if any(pod.role == "worker" for pod in running):
            allocation = _allocation(running, batch_size)
            yield Stretch(at_s=float(at[0] - began), duration_s=until - float(at[0]), allocation=allocation)


def _allocation(pods: list[_Pod], batch_size: int) -> Allocation:
    groups: dict[str, tuple[Group, ...]] = {}
    for role in _ROLES:
        sizes = sorted(pod.group for pod in pods if pod.role == role)
        counted = ((size, len(list(same))) for size, same in itertools.groupby(sizes))
        groups[role] = tuple(Group(replicas=n, cpu=cpu, memory_bytes=memory) for (cpu, memory), n in counted)
    return Allocation.model_validate(groups | {"batch_size": batch_size})


def _usage(pods: list[_Pod], role: str) -> Usage:
    mine = [pod for pod in pods if pod.role == role]
    peaks = [float(pod.metrics[MEMORY][1].max()) for pod in mine]
    used, seconds = (sum(column) for column in zip(*(pod.cpu_seconds for pod in mine), strict=True)) if mine else (0, 0)
    peak = int(max(peaks)) if peaks else None
    return Usage(memory_peak_bytes=peak, cpu_used=used / seconds if seconds else None)
