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
from sizewright.datasets.pod_metrics import (
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
from sizewright.datasets.prometheus import Prometheus, Series
from sizewright.errors import InputError, StoreError
from sizewright.how_far import steps
from sizewright.spec import Allocation, Failure, Group, Job, Outcome
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]
_LOG = logging.getLogger(__name__)

POD_NAME = r"(?P<job>.+)-(?P<role>worker|ps|chief|evaluator)-(?P<index>\d+)"
_ROLES = ("worker", "ps", "chief", "evaluator")
_GAP_STEPS = 5
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
        """What was seen of it from `first` on, before `after`."""
        return self._replace(containers=tuple(each.between(first, after) for each in self.containers))

    @property
    def memory_peak_bytes(self) -> int:
        """Of all containers at one time."""
        times = self.times
        return int(np.sum([each.get(MEMORY).at(times) for each in self.containers], axis=0).max())

    @property
    def cpu_seconds(self) -> tuple[float, float]:
        """Used, and over how long."""
        series = [values for each in self.containers if len((values := each.get(CPU)).times) > 1]
        if not series:
            return 0.0, 0.0
        first, last = min(v.times[0] for v in series), max(v.times[-1] for v in series)
        return sum(values.rise() for values in series), float(last - first)

    @property
    def cores(self) -> float | None:
        """Cores that it was given; those that it used where it had no quota; None where it has series of neither."""
        used, seconds = self.cpu_seconds
        shares = [each.last(QUOTA) / each.last(PERIOD) for each in self.containers if each.last(PERIOD) > 0]
        if quota := sum(share for share in shares if share > 0):
            return round(quota, 3)
        return round(max(used / seconds, 0.01), 3) if seconds else None

    @property
    def limit_bytes(self) -> int:
        """Of all containers; 0 where there is no limit."""
        return sum(each.limit_bytes for each in self.containers)

    def memory_kills(self, step_s: float) -> list[tuple[float, str]]:
        """When memory ended one of its containers, and what tells so."""
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
    """Jobs whose pods were all gone before `end` (seconds since 1970), the first that began first.

    Where no pod of a job was seen for five steps, its next run begins. Runs that were there at `start` are left out,
    since nobody knows when they began.

    `job` describes those that have its name; `pod_name` is a regular expression with the groups job, role and index.
    Throughput is not known of them. Raises StoreError where Prometheus does not answer or holds no such job, with what
    it does hold; InputError for a pattern that cannot be used.
    """
    pattern = _pattern(pod_name)
    start = step_s * (start // step_s)  # on a grid that stays, so that a run has the same id whenever it is asked for
    pods = _pods(prometheus, start, end, step_s, namespace, pattern)
    grouped = itertools.groupby(sorted(pods, key=_key), key=_key)
    runs = [_finished(run, step_s, job) for _, group in grouped for run in _runs([*group], step_s)]
    ended = [run for run, gone in runs if gone < end]
    whole = [run for run in ended if run.started_at and run.started_at.timestamp() > start]
    running, cut = len(runs) - len(ended), len(ended) - len(whole)
    if not whole:
        found = [f"{running} still running"] * bool(running) + [f"{cut} that had begun before"] * bool(cut)
        raise StoreError(
            f"No job began and ended in the time that Prometheus at {prometheus.url} was asked for: of those found, "
            f"{' and '.join(found)}, such as {runs[0][0].name}.",
            "Look further back (--since), or come again when they have ended.",
        )
    if cut:
        _LOG.warning("%s had begun before: look further back to have them whole.", format_count(cut, "run"))
    if unsized := [run for run in whole if not run.stretches]:
        _LOG.warning(
            "The cores of %s, such as %s, are unknown: Prometheus has neither %s nor %s of all their pods. "
            "Their memory is kept, and no sizes.",
            format_count(len(unsized), "run"), unsized[0].name, CPU, QUOTA,
        )  # fmt: skip
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
    cuts = [-np.inf, *times[1:][np.diff(times) > _gap_s(times, step_s)], np.inf]
    for first, after in itertools.pairwise(cuts):
        parts = [pod.between(first, after) for pod in pods]
        yield [part for part in parts if len(part.times)]


def _gap_s(times: Floats, step_s: float) -> float:
    """So long without a value means that it ended; values may be scraped less often than they are asked for."""
    return _GAP_STEPS * max(step_s, float(np.median(np.diff(times))) if len(times) > _GAP_STEPS else 0.0)


def _key(pod: _Pod) -> tuple[str, str]:
    return pod.namespace, pod.job


def _pods(
    prometheus: Prometheus, start: float, end: float, step_s: float, namespace: str | None, pattern: re.Pattern[str]
) -> list[_Pod]:
    """Replicas that have memory series. Raises StoreError where there is none, with what there is instead."""

    def ask(metric: str, where: str, window: str = "") -> list[Series]:
        found = prometheus.series(f"max_over_time({metric}{where}{window})" if window else f"{metric}{where}",
                                  start, end, step_s)  # fmt: skip
        owners = (owner_of(one.labels) for one in found)
        mine = (namespace is None or owner is None or owner.namespace == namespace for owner in owners)
        return [one for one, keep in zip(found, mine, strict=True) if keep]

    window = f"[{max(int(step_s), 1)}s]"
    wheres = ['{container!="POD"}']  # series without this label are read too
    if namespace:
        wheres.insert(0, f'{{container!="POD",namespace={json.dumps(namespace)}}}')
    for where in wheres:
        memory = ask(MEMORY, where, window)
        replicas = {name: _replica(name, pattern) for one in memory if (name := _pod_name(one))}
        if any(replicas.values()):
            break
    else:
        raise _no_replicas(prometheus, memory, list(replicas), namespace)
    others = steps("asking Prometheus", (CPU, QUOTA, PERIOD, MEMORY_LIMIT, OOM))
    found = {MEMORY: memory} | {metric: ask(metric, where) for metric in others}
    found |= {metric: ask(metric, "") for metric in (RESTARTS, *OOM_KILLED)}
    pods = []
    for (space, name), containers in containers_of(found).items():
        match = _replica(name, pattern)
        if match and containers:
            pods.append(_Pod(space, match["job"], match["role"].lower(), name, tuple(containers)))
    return pods


def _pod_name(series: Series) -> str:
    owner = owner_of(series.labels)
    return owner.pod if owner and len(series.times) else ""


def _replica(name: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
    match = pattern.fullmatch(name)
    return match if match and match["role"].lower() in _ROLES else None


def _no_replicas(prometheus: Prometheus, memory: list[Series], names: list[str], namespace: str | None) -> StoreError:
    """What to say where no series is of a replica: how many there are, and what they lack."""
    where = f"Prometheus at {prometheus.url}"
    many = f"{len(memory)} series of {MEMORY}"
    if namespace:
        many += f" in the namespace {namespace}"
    if not memory:
        return StoreError(
            f"{where} has 0{many.removeprefix('0')} in that time.",
            "Have it scrape cAdvisor (the kubelet's /metrics/cadvisor), look further back, or check the namespace.",
        )
    if names:
        shown = ", ".join(sorted(names)[:3])
        return StoreError(
            f"{where} has {many}, of {format_count(len(names), 'pod')} such as {shown}, "
            "and no name is that of a replica of a job.",
            _REMEDY_NAMES,
        )
    labels = sorted({label for one in memory for label in one.labels} - {"__name__"})
    return StoreError(
        f"{where} has {many}, and none has a label pod (or exported_pod, pod_name): their labels are "
        f"{', '.join(labels[:12]) or 'none'}.",
        "Keep the labels pod, namespace and container in its scrape configuration.",
    )


def _finished(pods: list[_Pod], step_s: float, job: Job | None) -> tuple[FinishedJob, float]:
    """The run, and from when on it surely was gone."""
    times = np.unique(np.concatenate([pod.times for pod in pods]))
    began, last = float(times[0]), float(times[-1])
    name = pods[0].job
    mine = job if job and job.name == name else None
    kills = [(at, pod.name, what) for pod in pods for at, what in pod.memory_kills(step_s)]
    failures = tuple(Failure(at_s=max(at - began, 0.0), replica=pod, cause="oom") for at, pod, _ in sorted(kills))
    at_end = any(at >= last - 2 * step_s for at, _, _ in kills)
    outcome = Outcome(
        status="failed" if at_end else "finished", duration_s=last - began, failures=failures, message=_message(kills)
    )
    started_at = datetime.fromtimestamp(began, timezone.utc)
    run = FinishedJob(
        id=f"{pods[0].namespace}/{name}@{started_at:%Y%m%dT%H%M%S}", name=name, job=mine, source="prometheus",
        executor="kubernetes", started_at=started_at, outcome=outcome,
        stretches=tuple(_stretches(pods, began, last, mine.training.batch_size if mine else 1)),
        worker=_usage(pods, "worker"), ps=_usage(pods, "ps"),
    )  # fmt: skip
    return run, last + _gap_s(times, step_s)


def _message(kills: list[tuple[float, str, str]]) -> str:
    """Of the replica whose memory ended it last."""
    if not kills:
        return ""
    _, pod, what = max(kills)
    times = sum(name == pod for _, name, _ in kills)
    often = f" ({times} times)" if times > 1 else ""
    return f"{pod} ran out of memory{often}: {what}; its peak is cut off there."


def _stretches(pods: list[_Pod], began: float, last: float, batch_size: int) -> Iterator[Stretch]:
    """Times at which the same pods ran, one after the other; those without a worker are passed over.

    So are those at which the cores of a pod are unknown.
    """
    seen = [pod.times for pod in pods]
    times = np.unique(np.concatenate(seen))
    alive = np.stack([(times >= its[0]) & (times <= its[-1]) for its in seen], 1)
    changes = np.flatnonzero((alive[1:] != alive[:-1]).any(1)) + 1
    for start, stop in itertools.pairwise([0, *changes.tolist(), len(times)]):
        at_s, until = float(times[start]), float(times[stop]) if stop < len(times) else last
        running = list(itertools.compress(pods, alive[start]))
        if any(pod.role == "worker" for pod in running) and None not in {pod.cores for pod in running}:
            allocation = _allocation(running, batch_size)
            yield Stretch(at_s=at_s - began, duration_s=until - at_s, allocation=allocation)


def _allocation(pods: list[_Pod], batch_size: int) -> Allocation:
    groups: dict[str, tuple[Group, ...]] = {}
    for role in _ROLES:
        sizes = sorted((pod.cores or 0.0, pod.limit_bytes) for pod in pods if pod.role == role)
        counted = ((size, len(list(same))) for size, same in itertools.groupby(sizes))
        groups[role] = tuple(Group(replicas=n, cpu=cpu, memory_bytes=memory) for (cpu, memory), n in counted)
    return Allocation.model_validate(groups | {"batch_size": batch_size})


def _usage(pods: list[_Pod], role: str) -> Usage:
    mine = [pod for pod in pods if pod.role == role]
    peak = max((pod.memory_peak_bytes for pod in mine), default=None)
    used, seconds = (sum(column) for column in zip(*(pod.cpu_seconds for pod in mine), strict=True)) if mine else (0, 0)
    return Usage(memory_peak_bytes=peak, cpu_used=used / seconds if seconds else None)
