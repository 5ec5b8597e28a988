"""Convert the metrics of a job to Prometheus samples and back; the only table of their names is here."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf, isfinite
from typing import Any, NamedTuple

from pydantic import ValidationError

from sizewright.errors import InputError
from sizewright.spec import ROLES, Allocation, Metrics, ReplicaMetrics
from sizewright.spec._base import validate
from sizewright.spec._faults import explain_first

PREFIX = "sizewright_"
REPLICA = {
    "at_s": "clock_seconds",
    "last_step_at_s": "last_step_clock_seconds",
    "cpu_s": "cpu_seconds_total",
    "throttled_s": "throttled_seconds_total",
    "runqueue_s": "runqueue_seconds_total",
    "memory_peak_bytes": "memory_peak_bytes",
    "cfs_period_ms": "cfs_period_milliseconds",
    "steps": "steps_total",
    "samples": "samples_total",
    "data_s": "data_seconds_total",
    "pull_s": "pull_seconds_total",
    "compute_s": "compute_seconds_total",
    "push_s": "push_seconds_total",
    "wait_s": "wait_seconds_total",
    "unique_rows": "unique_rows_total",
    "bytes_sent": "sent_bytes_total",
    "bytes_received": "received_bytes_total",
    "device_memory_bytes": "device_memory_bytes",
    "gpu_busy_s": "gpu_busy_seconds_total",
    "gpu_energy_j": "gpu_energy_joules_total",
    "loss": "loss",
    "exchanges": "exchanges_total",
    "pushes": "pushes_total",
    "busy_s": "busy_seconds_total",
    "lookups": "lookups_total",
    "rows": "rows",
    "embedding_bytes": "embedding_bytes",
    "index_bytes": "index_bytes",
}
JOB = {
    "samples_trained": "samples_trained_total",
    "samples_left": "samples_left",
    "engine_cpu_s": "engine_cpu_seconds_total",
}
GROUP = {"replicas": "replicas", "cpu": "cpu_cores", "memory_bytes": "memory_bytes"}
_OBSERVED_AT = f"{PREFIX}looked_at_seconds"
_BATCH_SIZE = f"{PREFIX}allocation_batch_size"
_GPUS = f"{PREFIX}allocation_gpus"
_LABELS = {"training_job", "run", "role", "replica", "group", "by", "kind"}
_LIMITED = f"{PREFIX}replica_limited"
_REPLICA_FIELDS = {f"{PREFIX}replica_{series}": name for name, series in REPLICA.items()}
_JOB_FIELDS = {f"{PREFIX}{series}": name for name, series in JOB.items()}
_GROUP_FIELDS = {f"{PREFIX}allocation_{series}": name for name, series in GROUP.items()}


class Sample(NamedTuple):
    """One value of one series."""

    name: str
    labels: dict[str, str]
    value: float


def query(job: str) -> str:
    """Return the query for all series of a job. The label is not `job`, which Prometheus sets itself."""
    return f'{{__name__=~"{PREFIX}.+",training_job={json.dumps(job)}}}'


def labels_of(job: str, run: str) -> dict[str, str]:
    """Return the labels that all series of a run have."""
    return {"training_job": job, "run": run}


def samples_of(at_s: float, metrics: Metrics, labels: dict[str, str]) -> Iterator[Sample]:
    """Yield the samples of an observation, made at `at_s` seconds on the run's clock."""
    yield Sample(_OBSERVED_AT, labels, at_s)
    for name, series in JOB.items():
        if (value := getattr(metrics, name)) is not None:
            yield Sample(f"{PREFIX}{series}", labels, value)
    for replica in metrics.replicas:
        replica_labels = labels | {"role": replica.role, "replica": str(replica.index)}
        if replica.limited_by:
            yield Sample(_LIMITED, replica_labels | {"by": replica.limited_by}, 1.0)
        for name, series in REPLICA.items():
            if (value := getattr(replica, name)) is not None:
                yield Sample(f"{PREFIX}replica_{series}", replica_labels, value)
    if metrics.allocation:
        yield from _allocation_samples(metrics.allocation, labels)


def _allocation_samples(allocation: Allocation, labels: dict[str, str]) -> Iterator[Sample]:
    yield Sample(_BATCH_SIZE, labels, allocation.batch_size)
    for role in ROLES:
        for number, group in enumerate(getattr(allocation, role)):
            group_labels = labels | {"role": role, "group": str(number)}
            for name, series in GROUP.items():
                yield Sample(f"{PREFIX}allocation_{series}", group_labels, getattr(group, name))
            if group.gpu:
                yield Sample(_GPUS, group_labels | {"kind": group.gpu.kind}, group.gpu.count)


def latest_copy(samples: Iterable[Sample]) -> list[Sample]:
    """Return the samples of the newest scrape, where several jobs or Prometheus servers scrape one run.

    Values that are not finite are left out, except a loss.
    """
    copies: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if isfinite(sample.value) or _REPLICA_FIELDS.get(sample.name) == "loss":
            scraped_by = {name: value for name, value in sample.labels.items() if name not in _LABELS}
            copies[json.dumps(scraped_by, sort_keys=True)].append(sample)
    newest = max(
        copies,
        key=lambda copy: max((s.value for s in copies[copy] if s.name == _OBSERVED_AT), default=-inf),
        default="",
    )
    return copies[newest]


def observation_of(samples: Iterable[Sample]) -> tuple[float, Metrics]:
    """Return the observation of one run, and its time, from the run's samples; other series are ignored.

    Raises InputError where the samples are invalid or incomplete.
    """
    fields: dict[str, Any] = {}
    replicas: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    groups: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for name, labels, value in samples:
        replica = replicas[labels.get("role", ""), labels.get("replica", "")] if "replica" in labels else {}
        group = groups[labels.get("role", ""), labels.get("group", "")] if "group" in labels else {}
        if name in _REPLICA_FIELDS:
            replica[_REPLICA_FIELDS[name]] = value
        elif name == _LIMITED:
            replica["limited_by"] = labels.get("by")
        elif name in _GROUP_FIELDS:
            group[_GROUP_FIELDS[name]] = value
        elif name == _GPUS:
            group["gpu"] = {"kind": labels.get("kind"), "count": value}
        elif name in (_OBSERVED_AT, _BATCH_SIZE, *_JOB_FIELDS):
            fields[_JOB_FIELDS.get(name, name)] = value
    try:
        return _metrics(fields, replicas, groups)
    except ValidationError as error:
        raise InputError(f"The job's series in Prometheus are invalid: {explain_first(error)}.") from None
    except (KeyError, ValueError) as error:
        raise InputError(f"The job's series in Prometheus are incomplete: {error} is missing.") from None


def _metrics(
    fields: dict[str, Any],
    replicas: dict[tuple[str, str], dict[str, Any]],
    groups: dict[tuple[str, str], dict[str, Any]],
) -> tuple[float, Metrics]:
    at_s = fields.pop(_OBSERVED_AT)
    batch_size = fields.pop(_BATCH_SIZE, None)
    if batch_size is not None:
        sides: dict[str, list[dict[str, Any]]] = {role: [] for role in ROLES}
        for (role, _), group in sorted(groups.items(), key=_by_number):
            if role in sides:
                sides[role].append(group)
        fields["allocation"] = {"batch_size": batch_size} | sides
    ordered = [
        validate(ReplicaMetrics, {"role": role, "index": int(index)} | sums)
        for (role, index), sums in sorted(replicas.items(), key=_by_number)
    ]
    return at_s, validate(Metrics, {"replicas": ordered} | fields)


def _by_number(item: tuple[tuple[str, str], Any]) -> tuple[str, int]:
    (role, number), _ = item
    return role, int(number)
