"""Group the series of containers by pod: find their owners, merge copies, and detect restarts.

Metrics have cAdvisor's and kube-state-metrics' names. One container may have several series: of nested control groups,
scraped by two jobs or by two Prometheus servers, and one after another where it restarted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.runs.prometheus import Series, labels_of_metric

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
"""Shares of the limit. Memory is sampled, so that the usage at the moment of a kill is seldom recorded."""


class Owner(NamedTuple):
    """The container of a series; `container` is empty where the series covers the whole pod, or does not name it."""

    namespace: str
    pod: str
    container: str


class Values(NamedTuple):
    """A metric of one container over time."""

    times: Floats
    """(n,), seconds since 1970, ascending."""
    values: Floats

    def between(self, first: float, after: float) -> Values:
        """Return the values from `first` on, before `after`."""
        inside = (self.times >= first) & (self.times < after)
        return Values(self.times[inside], self.values[inside])

    def at(self, times: Floats) -> Floats:
        """Interpolate the values at these times; they are 0 before the first and after the last."""
        return np.interp(times, self.times, self.values, left=0.0, right=0.0) if len(self.times) else 0.0 * times

    def resets(self) -> NDArray[np.bool_]:
        """Return a mask (n - 1,) of the resets of a counter.

        A fall by less than half is not a reset, since copies of one counter differ a little.
        """
        return np.asarray(self.values[1:] < 0.5 * self.values[:-1])

    def begins(self) -> list[float]:
        """Return the times at which the value rose above 0 or, above 0, rose further."""
        before = np.concatenate([[0.0], self.values[:-1]])
        return list(map(float, self.times[(self.values > 0) & (self.values > before)]))

    def rise(self) -> float:
        """Return the growth of a counter, across its resets."""
        if len(self.values) < 2:
            return 0.0
        highest = np.where(self.resets(), 0.0, self.values[:-1])
        return float(np.maximum(self.values[1:] - highest, 0.0).sum())


_NO_VALUES = Values(np.empty(0), np.empty(0))


class Container(NamedTuple):
    """The metrics of one container by name, and the times at which it restarted."""

    metrics: dict[str, Values]
    starts: tuple[float, ...] = ()
    """First times of its later control groups, one for each restart that created one."""

    def get(self, metric: str) -> Values:
        """Return the values of a metric; empty where there are none."""
        return self.metrics.get(metric, _NO_VALUES)

    def last(self, metric: str) -> float:
        """Return the last value of a metric, 0 where there is none."""
        values = self.get(metric).values
        return float(values[-1]) if len(values) else 0.0

    def between(self, first: float, after: float) -> Container:
        """Return the part of its metrics from `first` on, before `after`."""
        metrics = {name: values.between(first, after) for name, values in self.metrics.items()}
        return Container(metrics, tuple(at for at in self.starts if first < at < after))

    @property
    def limit_bytes(self) -> int:
        """The memory limit; 0 where there is none."""
        limit = self.last(MEMORY_LIMIT)
        return int(limit) if 0 < limit < _NO_LIMIT_BYTES else 0

    def restarts(self) -> list[float]:
        """Return the times of restarts: a new control group, a reset CPU counter, or a higher count of restarts."""
        cpu, count = self.get(CPU), self.get(RESTARTS)
        times = [*self.starts, *cpu.times[1:][cpu.resets()], *count.times[1:][np.diff(count.values) > 0]]
        return sorted(map(float, times))

    def memory_kills(self, step_s: float) -> list[tuple[float, str]]:
        """Return the times at which memory ended the container, each with the evidence.

        The evidence is a report of the kernel or of Kubernetes, or a restart or an end at the memory limit. The counter
        of kills disappears with the killed container, so that its absence means nothing.
        """
        kills = [(at, evidence) for metric, evidence in _REPORTS.items() for at in self.get(metric).begins()]
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


_REPORTS = {OOM: "the kernel killed one of its processes"} | dict.fromkeys(OOM_KILLED, "Kubernetes reports OOMKilled")


def owner_of(labels: dict[str, str]) -> Owner | None:
    """Return the container that the labels name; None where they name no pod, or the pause container."""
    exported = any(labels.get(f"exported_{name}") for name in _POD_LABELS)
    metric_labels = labels_of_metric(labels)
    pod = _first_label(metric_labels, _POD_LABELS)
    if exported and "exported_container" not in labels:  # then `container` is that of the exporter
        metric_labels.pop("container", None)
    container = _first_label(metric_labels, _CONTAINER_LABELS)
    if not container and (docker := metric_labels.get("name", "").split("_"))[0] == "k8s" and len(docker) > 1:
        container = docker[1]  # k8s_CONTAINER_POD_NAMESPACE_UID_RESTARTS
    if not pod or container in _PAUSE or re.search(r"(^|/)pause(-a\w+64)?[:@]", metric_labels.get("image", "")):
        return None
    return Owner(_first_label(metric_labels, _NAMESPACE_LABELS), pod, container)


def containers_of(series_by_metric: dict[str, list[Series]]) -> dict[tuple[str, str], list[Container]]:
    """Group series into containers by (namespace, pod); each container has one merged series per metric."""
    series: dict[Owner, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for metric, each in series_by_metric.items():
        for one in each:
            if len(one.times) and (owner := owner_of(one.labels)) is not None:
                series[owner][metric].append(one)
    named = {owner[:2] for owner, metrics in series.items() if owner.container and MEMORY in metrics}
    for owner in [owner for owner, metrics in series.items() if MEMORY not in metrics and owner[:2] not in named]:
        for metric, copies in series.pop(owner).items():  # such as reports of Kubernetes
            series[owner._replace(container="")][metric] += copies
    pods: dict[tuple[str, str], list[Container]] = defaultdict(list)
    for owner, metrics in series.items():
        if MEMORY not in metrics or (not owner.container and owner[:2] in named):
            continue  # the total of a pod whose containers have series of their own
        metrics = metrics if owner.container else {name: _outermost(copies) for name, copies in metrics.items()}
        merged = {name: _merged(copies, name) for name, copies in metrics.items()}
        pods[owner[:2]].append(Container(merged, tuple(_later_starts([*metrics[MEMORY], *metrics.get(CPU, [])]))))
    return pods


def _first_label(labels: dict[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _outermost(copies: list[Series]) -> list[Series]:
    """Return the series of the outermost control groups, which include those nested in them."""
    ids = {one.labels.get("id", "").rstrip("/") for one in copies}
    inner = {each for each in ids if any(each.startswith(f"{other}/") for other in ids if other)}
    return [one for one in copies if one.labels.get("id", "").rstrip("/") not in inner]


def _merged(copies: list[Series], metric: str) -> Values:
    """Merge copies of a series: keep the greatest value at each time, or the smallest real limit."""
    times = np.concatenate([one.times for one in copies])
    values = np.concatenate([one.values for one in copies])
    if metric in _SMALLEST_OF_COPIES:
        limits = (values > 0) & (values < _NO_LIMIT_BYTES)
        times, values = times[limits], values[limits]
    order = np.lexsort((values if metric in _SMALLEST_OF_COPIES else -values, times))
    times, first = np.unique(times[order], return_index=True)
    return Values(times, values[order][first])


def _later_starts(copies: list[Series]) -> list[float]:
    """Return the first times of all control groups but the earliest."""
    spans: dict[str, tuple[float, float]] = {}
    for one in copies:
        key = one.labels.get("id", "")
        first, last = spans.get(key, (np.inf, -np.inf))
        spans[key] = min(first, float(one.times[0])), max(last, float(one.times[-1]))
    earliest = min((first for first, _ in spans.values()), default=0.0)
    return sorted(first for first, _ in spans.values() if first > earliest)
