"""Replicas of a job as its pods tell of them: sizes by their requests, samples by their logs, memory and CPU by what
their containers' control groups say there, else by the cluster's metrics."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from sizewright.executors.slots import Slot, main_container
from sizewright.progress import Reading, Told, read_line
from sizewright.spec import Allocation, Group, Job, Metrics, ReplicaMetrics, Role
from sizewright.spec.command import Progress
from sizewright.spec.units import is_count, read_bytes, read_cores
from sizewright.training.command.reports import Reports, add_up

TAIL_LINES = 400
_GROUP = 10_000
"""Numbers of replicas in the second group of a role begin here."""

ReadLog = Callable[[str, str, "int | None"], str]
"""The last lines, or all, of a pod's container."""


class PodLabels(NamedTuple):
    """Keys of the labels by which a platform's operator tells its pods apart."""

    job: str
    role: str
    number: str | None = None


class _Seen(NamedTuple):
    """Of one pod, at the last look."""

    role: Role
    number: int
    reading: Reading
    earlier: int = 0
    """Samples of its containers that were started anew since."""
    told_at_s: float = 0.0
    """When its samples grew last."""
    cpu_s: float = 0.0
    memory_bytes: int = 0
    usage_at: str = ""

    @property
    def samples(self) -> int:
        """Of all its containers."""
        return self.earlier + self.reading.samples


class Pods:
    """Of one job, looked at again and again; samples of pods that went stay counted."""

    def __init__(
        self,
        job: Job,
        labels: PodLabels,
        words: Mapping[Role, str],
        containers: Sequence[str],
        now: Callable[[], float],
    ) -> None:
        self._job, self._labels, self._containers, self._now = job, labels, containers, now
        self._roles: dict[str, Role] = {word.lower(): role for role, word in words.items()}
        self._progress = job.command.progress if job.command else Progress()
        self._seen: dict[str, _Seen] = {}

    def look(self, pods: Sequence[dict[str, Any]], usages: Sequence[dict[str, Any]], log: ReadLog) -> Metrics:
        """Of those that run; `usages` are PodMetrics."""
        used = {each["metadata"]["name"]: each for each in usages}
        running = []
        for pod in filter(_runs, sorted(pods, key=_age)):
            if seen := self._seen.get(_uid(pod)) or self._place(pod):
                running.append(pod)
                self._seen[_uid(pod)] = self._look(seen, pod, used.get(pod["metadata"]["name"]), log)
        workers = [seen.samples for seen in self._seen.values() if seen.role in ("worker", "chief")]
        whole = self._progress.counts == "job" and self._progress.source != "log_samples"
        trained = max(workers, default=0) if whole else sum(workers)
        return Metrics(
            replicas=tuple(self._metrics(self._seen[_uid(pod)]) for pod in running),
            samples_trained=trained,
            samples_left=self._job.samples_left(trained),
            allocation=self._allocation(running),
        )

    def _look(self, before: _Seen, pod: dict[str, Any], used: dict[str, Any] | None, log: ReadLog) -> _Seen:
        name = main_container({"spec": pod["spec"]}, self._containers, pod["metadata"]["name"])["name"]
        whole = self._progress.source != "log_samples" and "<more>" in (self._progress.pattern or "<more>")
        lines = log(pod["metadata"]["name"], name, None if whole else TAIL_LINES).splitlines()
        told = list({each.process: each for line in lines if (each := read_line(line))}.values())
        batch_size = _slot(pod, self._containers).read_batch_size(self._job.training.batch_size)
        reading = self._reading(lines, told, batch_size)
        return _with_usage(self._grown(before, reading), told, name, used)

    def _grown(self, before: _Seen, reading: Reading) -> _Seen:
        """What it told before stays, where it tells nothing now; a container that began anew counts on."""
        last = before.reading.samples
        if not reading.samples:
            return before
        if reading.samples == last:
            return before._replace(reading=reading)
        earlier = before.earlier + (last if reading.samples < last else 0)
        return before._replace(reading=reading, earlier=earlier, told_at_s=reading.at_s or self._now())

    def _reading(self, lines: Sequence[str], told: Sequence[Told], batch_size: int) -> Reading:
        if self._progress.source == "log_samples":
            return add_up([each.reading for each in told]) if told else Reading()
        reports = Reports(self._progress, batch_size, Path(tempfile.gettempdir()))
        for line in lines:
            reports.line(line.strip(), self._now())
        return reports.last

    def _place(self, pod: dict[str, Any]) -> _Seen | None:
        """One that was not seen before: role and number; none for pods of another role, such as a head. Where the
        platform numbers none, in the order in which they are seen."""
        labels = pod["metadata"].get("labels") or {}
        word = str(labels.get(self._labels.role, "")).lower()
        group = 1
        if word not in self._roles:
            word, _, which = word.rpartition("-")
            group = int(which) if is_count(which) else 1
        if word not in self._roles:
            return None
        role, index = self._roles[word], str(labels.get(self._labels.number or "", ""))
        number = int(index) if is_count(index) else sum(seen.role == role for seen in self._seen.values())
        return _Seen(role, (group - 1) * _GROUP + number, Reading())

    def _metrics(self, seen: _Seen) -> ReplicaMetrics:
        reading = seen.reading
        return ReplicaMetrics(
            role=seen.role, index=seen.number, at_s=self._now(), cpu_s=seen.cpu_s, throttled_s=0.0,
            memory_peak_bytes=seen.memory_bytes, limited_by="cgroup", steps=reading.steps, samples=seen.samples,
            last_step_at_s=seen.told_at_s, data_s=reading.data_s, pull_s=reading.pull_s, compute_s=reading.compute_s,
            push_s=reading.push_s,
        )  # fmt: skip

    def _allocation(self, running: Sequence[dict[str, Any]]) -> Allocation | None:
        """What runs, by the requests of the pods; none where no worker does."""
        groups: dict[Role, list[Group]] = {}
        for pod in running:
            role, slot = self._seen[_uid(pod)].role, _slot(pod, self._containers)
            if not slot.asks_for_cores:
                continue
            one = slot.read()
            of_role = groups.setdefault(role, [])
            same = next((i for i, each in enumerate(of_role) if each.model_copy(update={"replicas": 1}) == one), None)
            if same is None:
                of_role.append(one)
            else:
                of_role[same] = one.model_copy(update={"replicas": of_role[same].replicas + 1})
        if "worker" not in groups:
            return None
        told = {role: tuple(of_role) for role, of_role in groups.items()}
        return Allocation(**told, batch_size=self._batch_size(running))

    def _batch_size(self, running: Sequence[dict[str, Any]]) -> int:
        worker = next(pod for pod in running if self._seen[_uid(pod)].role == "worker")
        return _slot(worker, self._containers).read_batch_size(self._job.training.batch_size)


def _with_usage(seen: _Seen, told: Sequence[Told], container: str, used: dict[str, Any] | None) -> _Seen:
    """What its control group says, of whichever process said it last; else the cluster's metrics, summed up."""
    own = max((each.usage for each in told), key=lambda usage: usage.cpu_s or 0.0, default=None)
    if own and own.cpu_s is not None:
        memory = max(seen.memory_bytes, own.memory_peak_bytes or own.memory_bytes or 0)
        return seen._replace(cpu_s=max(seen.cpu_s, own.cpu_s), memory_bytes=memory)
    for each in (used or {}).get("containers", []):
        if used and each["name"] == container and used["timestamp"] != seen.usage_at:
            cores = read_cores(each["usage"]["cpu"], "cpu") if each["usage"]["cpu"].strip("0num") else 0.0
            used_bytes = each["usage"]["memory"]
            held = read_bytes(used_bytes, "memory") if used_bytes.strip("0KMGTi") else 0
            memory = max(seen.memory_bytes, held)
            passed_s = _between(seen.usage_at, used["timestamp"]) or _seconds(used.get("window", "0s"))
            return seen._replace(cpu_s=seen.cpu_s + cores * passed_s, memory_bytes=memory, usage_at=used["timestamp"])
    return seen


def _between(before: str, after: str) -> float:
    times = [datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (before, after) if text]
    return (times[1] - times[0]).total_seconds() if len(times) == 2 else 0.0


def _seconds(duration: str) -> float:
    """`15.4s`; anything else is not known."""
    number = duration.removesuffix("s")
    return float(number) if is_count(number.replace(".", "", 1)) else 0.0


def _slot(pod: dict[str, Any], containers: Sequence[str]) -> Slot:
    name = pod["metadata"]["name"]
    return Slot(name, {"replicas": 1}, main_container({"spec": pod["spec"]}, containers, name))


def _runs(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _uid(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["uid"])


def _age(pod: dict[str, Any]) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"]["name"])
