"""Reconstruct finished jobs from the metrics of their pods: allocations over time, usage, and out-of-memory kills.

Metrics have cAdvisor's names. The job, role and index of a replica are read from the name of its pod, as Kubeflow's
training operator sets it: JOB-worker-0, JOB-ps-1.
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

from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
from sizewright.datasets.runs.pod_metrics import (
    CPU,
    MEMORY,
    MEMORY_LIMIT,
    OOM,
    OOM_KILLED,
    PERIOD,
    QUOTA,
    RESTARTS,
    Container,
    containers_of,
    owner_of,
)
from sizewright.datasets.runs.prometheus import Prometheus, Series
from sizewright.errors import InputError, StoreError
from sizewright.formatting import format_count
from sizewright.spec import Allocation, Failure, Group, Job, Outcome
from sizewright.task_progress import steps

Floats = NDArray[np.float64]
_LOG = logging.getLogger(__name__)

POD_NAME = r"(?P<job>.+)-(?P<role>worker|ps|chief|evaluator)-(?P<index>\d+)"
_ROLES = ("worker", "ps", "chief", "evaluator")
_RUN_GAP_STEPS = 5
_REMEDY_NAMES = (
    "Pass --pod-name, a regular expression with the groups job, role (worker, ps, chief, evaluator) and index."
)


class _Pod(NamedTuple):
    """One replica and its containers."""

    namespace: str
    job: str
    role: str
    name: str
    containers: tuple[Container, ...]

    @property
    def times(self) -> Floats:
        return np.unique(np.concatenate([each.get(MEMORY).times for each in self.containers]))

    def between(self, first: float, after: float) -> _Pod:
        """Return the part of its series from `first` on, before `after`."""
        return self._replace(containers=tuple(each.between(first, after) for each in self.containers))

    @property
    def memory_peak_bytes(self) -> int:
        """Peak over time of the sum over all containers."""
        times = self.times
        return int(np.sum([each.get(MEMORY).at(times) for each in self.containers], axis=0).max())

    @property
    def cpu_seconds(self) -> tuple[float, float]:
        """CPU seconds used, and the seconds over which they were measured."""
        series = [values for each in self.containers if len((values := each.get(CPU)).times) > 1]
        if not series:
            return 0.0, 0.0
        first, last = min(v.times[0] for v in series), max(v.times[-1] for v in series)
        return sum(values.rise() for values in series), float(last - first)

    @property
    def cores(self) -> float | None:
        """Cores of its quota; the cores that it used where it has no quota; None where it has series of neither."""
        used, seconds = self.cpu_seconds
        shares = [each.last(QUOTA) / each.last(PERIOD) for each in self.containers if each.last(PERIOD) > 0]
        if quota := sum(share for share in shares if share > 0):
            return round(quota, 3)
        return round(max(used / seconds, 0.01), 3) if seconds else None

    @property
    def limit_bytes(self) -> int:
        """Memory limit of all containers; 0 where there is no limit."""
        return sum(each.limit_bytes for each in self.containers)

    def memory_kills(self, step_s: float) -> list[tuple[float, str]]:
        """Return the times at which memory ended one of its containers, each with the evidence."""
        return sorted(kill for each in self.containers for kill in each.memory_kills(step_s))


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
    """Return the jobs whose pods had all ended before `end` (seconds since 1970), in the order of their start.

    A gap of five steps without a pod of a job separates two of its runs. Runs that existed at `start` are left out,
    since their start is unknown. Throughput is unknown for all of them.

    `job` describes the jobs that have its name; `pod_name` is a regular expression with the groups job, role and index.
    Raises StoreError where Prometheus does not answer or has no such job, with what it has instead; InputError for an
    invalid pattern.
    """
    pattern = _pattern(pod_name)
    start = step_s * (start // step_s)  # on a fixed grid, so that a run gets the same id in every query
    pods = _pods(prometheus, start, end, step_s, namespace, pattern)
    by_job = itertools.groupby(sorted(pods, key=_job_key), key=_job_key)
    runs = [_finished_job(run, step_s, job) for _, group in by_job for run in _split_runs([*group], step_s)]
    ended_runs = [run for run, gone_at in runs if gone_at < end]
    complete_runs = [run for run in ended_runs if run.started_at and run.started_at.timestamp() > start]
    running, begun_before = len(runs) - len(ended_runs), len(ended_runs) - len(complete_runs)
    if not complete_runs:
        others = [f"{running} still running"] * bool(running)
        others += [f"{begun_before} that began earlier"] * bool(begun_before)
        raise StoreError(
            f"No job began and ended in the queried time of Prometheus at {prometheus.url}. It has "
            f"{' and '.join(others)}, such as {runs[0][0].name}.",
            "Look further back (--since), or try again when they have ended.",
        )
    if begun_before:
        _LOG.warning(
            "Left out %s that began before the queried time: look further back (--since) to include them.",
            format_count(begun_before, "run"),
        )
    if unsized := [run for run in complete_runs if not run.stretches]:
        _LOG.warning(
            "The cores of %s, such as %s, are unknown: Prometheus has neither %s nor %s of all their pods. "
            "Their memory is kept without sizes.",
            format_count(len(unsized), "run"), unsized[0].name, CPU, QUOTA,
        )  # fmt: skip
    return sorted(complete_runs, key=lambda run: run.started_at or datetime.min.replace(tzinfo=timezone.utc))


def _pattern(pod_name: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(pod_name)
    except re.error as error:
        remedy = f"Write such as {POD_NAME}"
        raise InputError(f"{pod_name!r} is not a regular expression: {error}.", remedy) from None
    missing = {"job", "role", "index"} - set(pattern.groupindex)
    if missing:
        raise InputError(f"{pod_name!r} lacks the groups {', '.join(sorted(missing))}.", f"Write such as {POD_NAME}")
    return pattern


def _split_runs(pods: list[_Pod], step_s: float) -> Iterator[list[_Pod]]:
    """Split the pods of one job into runs, at the gaps without any pod."""
    times = np.unique(np.concatenate([pod.times for pod in pods]))
    cuts = [-np.inf, *times[1:][np.diff(times) > _run_gap_s(times, step_s)], np.inf]
    for first, after in itertools.pairwise(cuts):
        parts = [pod.between(first, after) for pod in pods]
        yield [part for part in parts if len(part.times)]


def _run_gap_s(times: Floats, step_s: float) -> float:
    """Return the gap that ends a run; it follows the scrape interval, which may be longer than the step."""
    return _RUN_GAP_STEPS * max(step_s, float(np.median(np.diff(times))) if len(times) > _RUN_GAP_STEPS else 0.0)


def _job_key(pod: _Pod) -> tuple[str, str]:
    return pod.namespace, pod.job


def _pods(
    prometheus: Prometheus, start: float, end: float, step_s: float, namespace: str | None, pattern: re.Pattern[str]
) -> list[_Pod]:
    """Return the replicas that have memory series. Raises StoreError where there is none, with a reason."""

    def query(metric: str, matchers: str, window: str = "") -> list[Series]:
        expression = f"max_over_time({metric}{matchers}{window})" if window else f"{metric}{matchers}"
        matches = []
        for series in prometheus.series(expression, start, end, step_s):
            owner = owner_of(series.labels)
            if namespace is None or owner is None or owner.namespace == namespace:
                matches.append(series)
        return matches

    window = f"[{max(int(step_s), 1)}s]"
    all_matchers = ['{container!="POD"}']  # series without this label are read too
    if namespace:
        all_matchers.insert(0, f'{{container!="POD",namespace={json.dumps(namespace)}}}')
    for matchers in all_matchers:
        memory = query(MEMORY, matchers, window)
        replicas = {name: _replica(name, pattern) for one in memory if (name := _pod_name(one))}
        if any(replicas.values()):
            break
    else:
        raise _no_replicas(prometheus, memory, list(replicas), namespace)
    others = steps("asking Prometheus", (CPU, QUOTA, PERIOD, MEMORY_LIMIT, OOM))
    series_by_metric = {MEMORY: memory} | {metric: query(metric, matchers) for metric in others}
    series_by_metric |= {metric: query(metric, "") for metric in (RESTARTS, *OOM_KILLED)}
    pods = []
    for (pod_namespace, name), containers in containers_of(series_by_metric).items():
        match = _replica(name, pattern)
        if match and containers:
            pods.append(_Pod(pod_namespace, match["job"], match["role"].lower(), name, tuple(containers)))
    return pods


def _pod_name(series: Series) -> str:
    owner = owner_of(series.labels)
    return owner.pod if owner and len(series.times) else ""


def _replica(name: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
    match = pattern.fullmatch(name)
    return match if match and match["role"].lower() in _ROLES else None


def _no_replicas(prometheus: Prometheus, memory: list[Series], names: list[str], namespace: str | None) -> StoreError:
    """Return the error for memory series of which none belongs to a replica, with what they lack."""
    server_has = f"Prometheus at {prometheus.url} has {len(memory)} series of {MEMORY}"
    if namespace:
        server_has += f" in the namespace {namespace}"
    if not memory:
        return StoreError(
            f"{server_has} in that time.",
            "Have it scrape cAdvisor (the kubelet's /metrics/cadvisor), look further back, or check the namespace.",
        )
    if names:
        shown = ", ".join(sorted(names)[:3])
        return StoreError(
            f"{server_has}, of {format_count(len(names), 'pod')} such as {shown}, but no name matches a replica of a "
            "job.",
            _REMEDY_NAMES,
        )
    labels = sorted({label for one in memory for label in one.labels} - {"__name__"})
    return StoreError(
        f"{server_has}, but none has a label pod (or exported_pod, pod_name): their labels are "
        f"{', '.join(labels[:12]) or 'none'}.",
        "Keep the labels pod, namespace and container in its scrape configuration.",
    )


def _finished_job(pods: list[_Pod], step_s: float, job: Job | None) -> tuple[FinishedJob, float]:
    """Return the run, and the time from which it certainly had ended."""
    times = np.unique(np.concatenate([pod.times for pod in pods]))
    began, last = float(times[0]), float(times[-1])
    name = pods[0].job
    description = job if job and job.name == name else None
    kills = [(at, pod.name, evidence) for pod in pods for at, evidence in pod.memory_kills(step_s)]
    failures = tuple(Failure(at_s=max(at - began, 0.0), replica=pod, cause="oom") for at, pod, _ in sorted(kills))
    at_end = any(at >= last - 2 * step_s for at, _, _ in kills)
    outcome = Outcome(
        status="failed" if at_end else "finished", duration_s=last - began, failures=failures, message=_message(kills)
    )
    started_at = datetime.fromtimestamp(began, timezone.utc)
    run = FinishedJob(
        id=f"{pods[0].namespace}/{name}@{started_at:%Y%m%dT%H%M%S}", name=name, job=description, source="prometheus",
        executor="kubernetes", started_at=started_at, outcome=outcome,
        stretches=tuple(_segments(pods, began, last, description)),
        worker=_usage(pods, "worker"), ps=_usage(pods, "ps"),
    )  # fmt: skip
    return run, last + _run_gap_s(times, step_s)


def _message(kills: list[tuple[float, str, str]]) -> str:
    """Describe the last out-of-memory kill; empty where there is none."""
    if not kills:
        return ""
    _, pod, evidence = max(kills)
    times = sum(name == pod for _, name, _ in kills)
    count = f" ({times} times)" if times > 1 else ""
    return f"{pod} ran out of memory{count}: {evidence}; its peak is cut off there."


def _segments(pods: list[_Pod], began: float, last: float, job: Job | None) -> Iterator[Segment]:
    """Yield the segments during which the same pods ran.

    Segments without a worker, and those with a pod whose cores are unknown, are skipped.
    """
    times_of_pods = [pod.times for pod in pods]
    times = np.unique(np.concatenate(times_of_pods))
    alive = np.stack([(times >= its[0]) & (times <= its[-1]) for its in times_of_pods], 1)
    changes = np.flatnonzero((alive[1:] != alive[:-1]).any(1)) + 1
    for start, stop in itertools.pairwise([0, *changes.tolist(), len(times)]):
        at_s, until = float(times[start]), float(times[stop]) if stop < len(times) else last
        running = list(itertools.compress(pods, alive[start]))
        if any(pod.role == "worker" for pod in running) and None not in {pod.cores for pod in running}:
            allocation = _allocation(running, job)
            yield Segment(at_s=at_s - began, duration_s=until - at_s, allocation=allocation)


def _allocation(pods: list[_Pod], job: Job | None) -> Allocation:
    groups: dict[str, tuple[Group, ...]] = {}
    for role in _ROLES:
        sizes = sorted((pod.cores or 0.0, pod.limit_bytes) for pod in pods if pod.role == role)
        counted = ((size, len(list(same))) for size, same in itertools.groupby(sizes))
        groups[role] = tuple(Group(replicas=n, cpu=cpu, memory_bytes=memory) for (cpu, memory), n in counted)
    batch_size = job.batch_size_for(sum(pod.role == "worker" for pod in pods)) if job else 1
    return Allocation.model_validate(groups | {"batch_size": batch_size})


def _usage(pods: list[_Pod], role: str) -> JobUsage:
    pods = [pod for pod in pods if pod.role == role]
    peak = max((pod.memory_peak_bytes for pod in pods), default=None)
    cpu_seconds = [pod.cpu_seconds for pod in pods]
    used, seconds = sum(used for used, _ in cpu_seconds), sum(seconds for _, seconds in cpu_seconds)
    return JobUsage(memory_peak_bytes=peak, cpu_used=used / seconds if seconds else None)
