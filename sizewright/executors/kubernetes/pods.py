"""Metrics of a job's replicas, read from its pods.

Sizes are the pods' requests, and samples come from their logs. Memory and CPU come from the container's control group,
which `log_samples` prints to the log, or else from the cluster's metrics.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from sizewright.executors.kubernetes.container_spec import ContainerSpec, main_container
from sizewright.executors.kubernetes.objects import seconds_of
from sizewright.progress import ProgressLine, Reading, read_line
from sizewright.spec import Allocation, Group, Job, Metrics, ReplicaLog, ReplicaMetrics, Role
from sizewright.spec.command import Progress
from sizewright.spec.units import is_count, read_bytes, read_cores
from sizewright.training.command.reports import Reports, add_up, counters

TAIL_LINES = 400
_GROUP_STEP = 10_000
"""The difference between the numbers of replicas in one group of a role and those in the next."""

ReadLog = Callable[[str, str, "int | None"], str]
"""Return the log of a pod's container: its last lines, or all of it."""


class PodLabels(NamedTuple):
    """The keys of the labels that a platform's operator gives its pods."""

    job: str
    role: str
    number: str | None = None


class _PodState(NamedTuple):
    """The state of one pod, as it was read so far."""

    role: Role
    number: int
    reading: Reading
    earlier_samples: int = 0
    """Samples of the pod's containers before the last restart."""
    last_progress_at_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    usage_at: str = ""
    """The timestamp of the PodMetrics that were counted last."""

    @property
    def samples(self) -> int:
        """Samples of all containers that the pod has had."""
        return self.earlier_samples + self.reading.samples


class Pods:
    """Reads the pods of one job repeatedly. Samples of pods that are gone stay counted."""

    def __init__(
        self,
        job: Job,
        labels: PodLabels,
        roles: Mapping[str, Role],
        containers: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        self.job = job
        self._labels = labels
        self._containers = containers
        self._clock = clock
        self._roles = {name.lower(): role for name, role in roles.items()}
        self._progress = job.command.progress if job.command else Progress()
        self._states: dict[str, _PodState] = {}
        self._workers = 1

    def read(
        self,
        pods: Sequence[dict[str, Any]],
        usages: Sequence[dict[str, Any]],
        log: ReadLog,
        reported: int | None = None,
    ) -> Metrics:
        """Return the metrics of the pods that run; `usages` are their PodMetrics.

        `reported` are the job's samples by the status of its object. They count only where no log of the job has told
        samples so far: logs tell the samples of each replica, while a status has an estimate by one of them.
        """
        places = [self.group_of(pod) for pod in pods if is_running(pod)]
        self._workers = max(1, sum(place is not None and place[0] == "worker" for place in places))
        usage_of = {usage["metadata"]["name"]: usage for usage in usages}
        running = []
        for pod in filter(is_running, sorted(pods, key=_age)):
            if state := self._states.get(uid_of(pod)) or self._new_state(pod):
                running.append(pod)
                self._states[uid_of(pod)] = self._updated(state, pod, usage_of.get(pod["metadata"]["name"]), log)
        samples = [state.samples for state in self._states.values() if state.role in ("worker", "chief")]
        told = max(samples, default=0) if self._progress.log_counts_job else sum(samples)
        trained = told or reported or 0
        return Metrics(
            replicas=tuple(self._metrics(self._states[uid_of(pod)]) for pod in running),
            samples_trained=trained,
            samples_left=self.job.samples_left(trained),
            allocation=self.allocation(running),
        )

    def logs(
        self, pods: Sequence[dict[str, Any]], usages: Sequence[dict[str, Any]], timed_log: Callable[[str, str], str]
    ) -> list[ReplicaLog]:
        """Return the complete log of each replica that trains or has ended well, of its newest pod.

        `timed_log` returns one with the time of each line, and `usages` are the PodMetrics of the pods.
        """
        places = [self.group_of(pod) for pod in pods if is_running(pod)]
        self._workers = max(1, sum(place is not None and place[0] == "worker" for place in places))
        usage_of = {usage["metadata"]["name"]: usage for usage in usages}
        logs: dict[tuple[Role, int], ReplicaLog] = {}
        for pod in sorted(pods, key=_age):
            state = self._states.get(uid_of(pod)) or self._new_state(pod)
            has_succeeded = (pod.get("status") or {}).get("phase") == "Succeeded"
            if state is None or not (is_running(pod) or has_succeeded):
                continue
            self._states.setdefault(uid_of(pod), state)
            name = pod["metadata"]["name"]
            container = main_container({"spec": pod["spec"]}, self._containers, name)["name"]
            usage = _container_usage(usage_of.get(name), container)
            lines = (line.partition(" ") for line in timed_log(name, container).splitlines())
            timed = ((seconds_of(at), text) for at, _, text in lines)
            kept = tuple((at_s, text) for at_s, text in timed if at_s is not None)
            logs[state.role, state.number] = ReplicaLog(state.role, state.number, kept, *(usage or ()))
        return list(logs.values())

    def ran_out_of_memory(self, pod: Mapping[str, Any]) -> bool:
        """Return whether memory ended the container of a pod that trains, last or the time before."""
        container = main_container({"spec": pod["spec"]}, self._containers, pod["metadata"]["name"])["name"]
        for status in (pod.get("status") or {}).get("containerStatuses") or []:
            states = [(status.get(key) or {}).get("terminated") or {} for key in ("state", "lastState")]
            if status.get("name") == container and any(each.get("reason") == "OOMKilled" for each in states):
                return True
        return False

    def _updated(self, state: _PodState, pod: dict[str, Any], usage: dict[str, Any] | None, log: ReadLog) -> _PodState:
        name = pod["metadata"]["name"]
        container = main_container({"spec": pod["spec"]}, self._containers, name)["name"]
        # A pattern that counts increments needs all lines.
        needs_all = self._progress.source != "log_samples" and "<more>" in (self._progress.pattern or "<more>")
        lines = log(name, container, None if needs_all else TAIL_LINES).splitlines()
        # The last line of each process in the container.
        progress_lines = list({line.process: line for text in lines if (line := read_line(text))}.values())
        batch_size = self._container_spec(pod).read_batch_size(self.job.batch_size_for(self._workers))
        if self._progress.source == "log_samples":
            reading = add_up([line.reading for line in progress_lines]) if progress_lines else Reading()
        else:
            reports = Reports(self._progress, batch_size, Path(tempfile.gettempdir()))
            for text in lines:
                reports.line(text.strip(), self._clock())
            reading = reports.last
        return _with_usage(self._with_reading(state, reading), progress_lines, container, usage)

    def _with_reading(self, state: _PodState, reading: Reading) -> _PodState:
        """Return the state with a new reading. Without samples the earlier reading stays; fewer are a restart."""
        last = state.reading.samples
        if not reading.samples:
            return state
        if reading.samples == last:
            return state._replace(reading=reading)
        earlier_samples = state.earlier_samples + (last if reading.samples < last else 0)
        return state._replace(
            reading=reading, earlier_samples=earlier_samples, last_progress_at_s=reading.at_s or self._clock()
        )

    def _new_state(self, pod: dict[str, Any]) -> _PodState | None:
        """Return the state of a new pod, or None if the pod is of no role of the job, such as a head.

        Where the platform does not number its pods, they are numbered in the order in which they appear.
        """
        place = self.group_of(pod)
        if place is None:
            return None
        role, group = place
        index = str((pod["metadata"].get("labels") or {}).get(self._labels.number or "", ""))
        number = int(index) if is_count(index) else sum(state.role == role for state in self._states.values())
        return _PodState(role, group * _GROUP_STEP + number, Reading())

    def group_of(self, pod: Mapping[str, Any]) -> tuple[Role, int] | None:
        """Return a pod's role and which group of the role it is in, from 0; None if it is of no role of the job."""
        labels = pod["metadata"].get("labels") or {}
        word, number = str(labels.get(self._labels.role, "")).lower(), 1
        if word not in self._roles:  # such as ps-2
            word, _, suffix = word.rpartition("-")
            number = int(suffix) if is_count(suffix) else 1
        return (self._roles[word], number - 1) if word in self._roles else None

    def _metrics(self, state: _PodState) -> ReplicaMetrics:
        return ReplicaMetrics(
            role=state.role,
            index=state.number,
            at_s=self._clock(),
            cpu_s=state.cpu_s,
            throttled_s=0.0,
            memory_peak_bytes=state.memory_bytes,
            limited_by="cgroup",
            last_step_at_s=state.last_progress_at_s,
            **counters(state.reading, samples=state.samples),
        )

    def allocation(self, pods: Sequence[dict[str, Any]]) -> Allocation | None:
        """Return the allocation by the requests of the pods that run, or None if no worker runs."""
        groups: dict[Role, list[Group]] = {}
        places = [(pod, place[0]) for pod in pods if is_running(pod) and (place := self.group_of(pod))]
        for pod, role in places:
            spec = self._container_spec(pod)
            if not spec.asks_for_cores:
                continue
            size = spec.read()
            of_role = groups.setdefault(role, [])
            same = next((i for i, each in enumerate(of_role) if each.model_copy(update={"replicas": 1}) == size), None)
            if same is None:
                of_role.append(size)
            else:
                of_role[same] = size.model_copy(update={"replicas": of_role[same].replicas + 1})
        if "worker" not in groups:
            return None
        worker = next(pod for pod, role in places if role == "worker")
        workers = sum(group.replicas for group in groups["worker"])
        batch_size = self._container_spec(worker).read_batch_size(self.job.batch_size_for(workers))
        return Allocation(**{role: tuple(of_role) for role, of_role in groups.items()}, batch_size=batch_size)

    def _container_spec(self, pod: dict[str, Any]) -> ContainerSpec:
        name = pod["metadata"]["name"]
        container = main_container({"spec": pod["spec"]}, self._containers, name)
        return ContainerSpec(name, {"replicas": 1}, container)


def _with_usage(
    state: _PodState, progress_lines: Sequence[ProgressLine], container: str, pod_metrics: dict[str, Any] | None
) -> _PodState:
    """Return the state with CPU and memory of the container's control group, else of the cluster's metrics.

    The cluster's metrics give cores over a window, which are multiplied by the time since the last ones.
    """
    cgroup = max((line.usage for line in progress_lines), key=lambda usage: usage.cpu_s or 0.0, default=None)
    if cgroup and cgroup.cpu_s is not None:
        memory = max(state.memory_bytes, cgroup.memory_peak_bytes or cgroup.memory_bytes or 0)
        return state._replace(cpu_s=max(state.cpu_s, cgroup.cpu_s), memory_bytes=memory)
    if not pod_metrics or pod_metrics["timestamp"] == state.usage_at:
        return state
    if (usage := _container_usage(pod_metrics, container)) is None:
        return state
    cores, memory = usage
    timestamp = pod_metrics["timestamp"]
    passed_s = _seconds_between(state.usage_at, timestamp) or _seconds(pod_metrics.get("window", "0s"))
    return state._replace(
        cpu_s=state.cpu_s + cores * passed_s, memory_bytes=max(state.memory_bytes, memory), usage_at=timestamp
    )


def _container_usage(pod_metrics: dict[str, Any] | None, container: str) -> tuple[float, int] | None:
    """Return the cores and the memory of a container by its PodMetrics; None if they do not have it."""
    containers = (pod_metrics or {}).get("containers", [])
    usage = next((each["usage"] for each in containers if each["name"] == container), None)
    if usage is None:
        return None
    cores = read_cores(usage["cpu"], "cpu") if usage["cpu"].strip("0num") else 0.0
    memory = read_bytes(usage["memory"], "memory") if usage["memory"].strip("0KMGTi") else 0
    return cores, memory


def _seconds_between(before: str, after: str) -> float:
    times = [datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (before, after) if text]
    return (times[1] - times[0]).total_seconds() if len(times) == 2 else 0.0


def _seconds(duration: str) -> float:
    """Return the seconds of a duration such as `15.4s`; 0 for any other format."""
    number = duration.removesuffix("s")
    return float(number) if is_count(number.replace(".", "", 1)) else 0.0


def is_running(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod's containers have started, and it is not being deleted."""
    return (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod's containers have ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def uid_of(pod: Mapping[str, Any]) -> str:
    """Return what tells a pod from others of its name."""
    return str(pod["metadata"].get("uid") or pod["metadata"]["name"])


def _age(pod: dict[str, Any]) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"]["name"])
