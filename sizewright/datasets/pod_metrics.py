"""Series of containers, put together to replicas: whose they are, which are copies, and when a container restarted.

Metrics have cAdvisor's and kube-state-metrics' names. The same container may come as several series: of nested control
groups, scraped by two jobs or by two Prometheus servers, and one after another where it restarted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.prometheus import Series, own_labels

Floats = NDArray[np.float64]

CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
QUOTA, PERIOD = "container_spec_cpu_quota", "container_spec_cpu_period"
MEMORY_LIMIT, OOM = "container_spec_memory_limit_bytes", "container_oom_events_total"
RESTARTS = "kube_pod_container_status_restarts_total"
OOM_KILLED = (
    'kube_pod_container_status_last_terminated_reason{reason="OOMKilled"}',
    'kube_pod_container_status_terminated_reason{reason="OOMKilled"}',
)
_NO_LIMIT_BYTES = 1 << 60
_POD_LABELS = ("pod", "pod_name", "container_label_io_kubernetes_pod_name", "kubernetes_pod_name")
_NAMESPACE_LABELS = ("namespace", "container_label_io_kubernetes_pod_namespace", "kubernetes_namespace")
_CONTAINER_LABELS = ("container", "container_name", "container_label_io_kubernetes_container_name")
_PAUSE = ("POD", "pause")
_SMALLEST_OF_COPIES = (QUOTA, PERIOD, MEMORY_LIMIT)
_END_STEPS, _RESTART_STEPS = 2, 3
_ENDS_AT_LIMIT, _RESTARTS_AT_LIMIT = 0.98, 0.9
"""Shares of the limit. Memory is sampled, so that what was used when the kernel killed a container is seldom seen."""


class Owner(NamedTuple):
    """The container that a series is of; `container` is empty where the series is of a whole pod, or does not say."""

    namespace: str
    pod: str
    container: str


class Values(NamedTuple):
    """A metric of one container over time."""

    times: Floats
    """(n,), seconds since 1970, ascending."""
    values: Floats

    def between(self, first: float, after: float) -> Values:
        """Those from `first` on, before `after`."""
        inside = (self.times >= first) & (self.times < after)
        return Values(self.times[inside], self.values[inside])

    def at(self, times: Floats) -> Floats:
        """Values at these times, 0 before the first and after the last."""
        return np.interp(times, self.times, self.values, left=0.0, right=0.0) if len(self.times) else 0.0 * times

    def resets(self) -> NDArray[np.bool_]:
        """(n - 1,): where a counter begins again; a small fall is none, since copies of one counter differ a little."""
        return np.asarray(self.values[1:] < 0.5 * self.values[:-1])

    def begins(self) -> list[float]:
        """When it rose above 0 or, above 0, rose further."""
        before = np.concatenate([[0.0], self.values[:-1]])
        return list(map(float, self.times[(self.values > 0) & (self.values > before)]))

    def rise(self) -> float:
        """By how much a counter grew."""
        if len(self.values) < 2:
            return 0.0
        highest = np.where(self.resets(), 0.0, self.values[:-1])
        return float(np.maximum(self.values[1:] - highest, 0.0).sum())


_NONE = Values(np.empty(0), np.empty(0))


class Container(NamedTuple):
    """The metrics of one container by name, and the times at which it restarted."""

    metrics: dict[str, Values]
    starts: tuple[float, ...] = ()
    """First times of its control groups, one for each restart that gave it another."""

    def get(self, metric: str) -> Values:
        """The metric; without values where it was never seen."""
        return self.metrics.get(metric, _NONE)

    def last(self, metric: str) -> float:
        """The last value, 0 where there is none."""
        values = self.get(metric).values
        return float(values[-1]) if len(values) else 0.0

    def between(self, first: float, after: float) -> Container:
        """What was seen of it from `first` on, before `after`."""
        metrics = {name: values.between(first, after) for name, values in self.metrics.items()}
        return Container(metrics, tuple(at for at in self.starts if first < at < after))

    @property
    def limit_bytes(self) -> int:
        """Its memory limit; 0 where it has none."""
        limit = self.last(MEMORY_LIMIT)
        return int(limit) if 0 < limit < _NO_LIMIT_BYTES else 0

    def restarts(self) -> list[float]:
        """When it began again: another control group, its CPU counter at 0, or its count of restarts one higher."""
        cpu, count = self.get(CPU), self.get(RESTARTS)
        found = [*self.starts, *cpu.times[1:][cpu.resets()], *count.times[1:][np.diff(count.values) > 0]]
        return sorted(map(float, found))

    def memory_kills(self, step_s: float) -> list[tuple[float, str]]:
        """When memory ended it, and what tells so: the kernel, Kubernetes, or a restart or an end at its limit.

        The counter of kills goes with the container that was killed, so that its silence means nothing.
        """
        kills = [(at, what) for metric, what in _REPORTS.items() for at in self.get(metric).begins()]
        memory, limit = self.get(MEMORY), self.limit_bytes
        if not limit or not len(memory.times):
            return sorted(kills)
        for at in [] if kills else self.restarts():
            before = memory.between(at - _RESTART_STEPS * step_s, at).values
            recent = not kills or at - kills[-1][0] > _RESTART_STEPS * step_s  # one restart may show in several metrics
            if recent and len(before) and before.max() >= _RESTARTS_AT_LIMIT * limit:
                kills.append((at, "it restarted with its memory at the limit"))
        end = float(memory.times[-1])
        at_end = memory.between(end - _END_STEPS * step_s, np.inf).values
        if at_end.max() >= _ENDS_AT_LIMIT * limit and all(at < end - _RESTART_STEPS * step_s for at, _ in kills):
            kills.append((end, "it ended with its memory at the limit"))
        return sorted(kills)


_REPORTS = {OOM: "the kernel killed a process of it"} | dict.fromkeys(OOM_KILLED, "Kubernetes reports OOMKilled")


def owner_of(labels: dict[str, str]) -> Owner | None:
    """Whose series it is by its labels; None where they name no pod, or the pause container."""
    exported = any(labels.get(f"exported_{name}") for name in _POD_LABELS)
    own = own_labels(labels)
    pod = _first(own, _POD_LABELS)
    if exported and "exported_container" not in labels:  # what is left is that of the exporter
        own = {name: value for name, value in own.items() if name != "container"}
    container = _first(own, _CONTAINER_LABELS)
    if not container and (docker := own.get("name", "").split("_"))[0] == "k8s" and len(docker) > 1:
        container = docker[1]  # k8s_CONTAINER_POD_NAMESPACE_UID_RESTARTS
    if not pod or container in _PAUSE or re.search(r"(^|/)pause(-a\w+64)?[:@]", own.get("image", "")):
        return None
    return Owner(_first(own, _NAMESPACE_LABELS), pod, container)


def containers_of(found: dict[str, list[Series]]) -> dict[tuple[str, str], list[Container]]:
    """Containers by (namespace, pod), each with one series a metric, out of the series of each metric."""
    series: dict[Owner, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for metric, each in found.items():
        for one in each:
            if len(one.times) and (owner := owner_of(one.labels)) is not None:
                series[owner][metric].append(one)
    named = {owner[:2] for owner, metrics in series.items() if owner.container and MEMORY in metrics}
    for owner in [owner for owner, metrics in series.items() if MEMORY not in metrics and owner[:2] not in named]:
        for metric, copies in series.pop(owner).items():  # such as what Kubernetes reports of it
            series[owner._replace(container="")][metric] += copies
    pods: dict[tuple[str, str], list[Container]] = defaultdict(list)
    for owner, metrics in series.items():
        if MEMORY not in metrics or (not owner.container and owner[:2] in named):
            continue  # the whole of a pod whose containers are told one by one
        metrics = metrics if owner.container else {name: _outermost(copies) for name, copies in metrics.items()}
        merged = {name: _merged(copies, name) for name, copies in metrics.items()}
        pods[owner[:2]].append(Container(merged, tuple(_later_starts([*metrics[MEMORY], *metrics.get(CPU, [])]))))
    return pods


def _first(labels: dict[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _outermost(copies: list[Series]) -> list[Series]:
    """Of control groups within one another, those that hold the others: what is within is counted in them."""
    ids = {one.labels.get("id", "").rstrip("/") for one in copies}
    inner = {each for each in ids if any(each.startswith(f"{other}/") for other in ids if other)}
    return [one for one in copies if one.labels.get("id", "").rstrip("/") not in inner]


def _merged(copies: list[Series], metric: str) -> Values:
    """One series of several: at each time the greatest, of limits the smallest that is one."""
    times = np.concatenate([one.times for one in copies])
    values = np.concatenate([one.values for one in copies])
    if metric in _SMALLEST_OF_COPIES:
        limits = (values > 0) & (values < _NO_LIMIT_BYTES)
        times, values = times[limits], values[limits]
    order = np.lexsort((values if metric in _SMALLEST_OF_COPIES else -values, times))
    times, first = np.unique(times[order], return_index=True)
    return Values(times, values[order][first])


def _later_starts(copies: list[Series]) -> list[float]:
    """First times of control groups that began after another had ended."""
    spans: dict[str, tuple[float, float]] = {}
    for one in copies:
        key = one.labels.get("id", "")
        first, last = spans.get(key, (np.inf, -np.inf))
        spans[key] = min(first, float(one.times[0])), max(last, float(one.times[-1]))
    earliest = min((first for first, _ in spans.values()), default=0.0)
    return sorted(first for first, _ in spans.values() if first > earliest)
