"""Metrics of a job as series of a Prometheus, and back: the one table of their names is here."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf, isfinite
from typing import Any, NamedTuple

from pydantic import ValidationError

from sizewright.errors import InputError
from sizewright.spec import ROLES, Allocation, Metrics, ReplicaMetrics
from sizewright.spec._base import checked
from sizewright.spec._faults import explain_first

PREFIX = "sizewright_"
REPLICA = {
    "at_s": "clock_seconds", "last_step_at_s": "last_step_clock_seconds", "cpu_s": "cpu_seconds_total",
    "throttled_s": "throttled_seconds_total", "runqueue_s": "runqueue_seconds_total",
    "memory_peak_bytes": "memory_peak_bytes",
    "cfs_period_ms": "cfs_period_milliseconds", "steps": "steps_total", "samples": "samples_total",
    "data_s": "data_seconds_total", "pull_s": "pull_seconds_total", "compute_s": "compute_seconds_total",
    "push_s": "push_seconds_total", "wait_s": "wait_seconds_total", "unique_rows": "unique_rows_total",
    "bytes_sent": "sent_bytes_total", "bytes_received": "received_bytes_total",
    "device_memory_bytes": "device_memory_bytes", "loss": "loss", "exchanges": "exchanges_total",
    "pushes": "pushes_total", "busy_s": "busy_seconds_total", "lookups": "lookups_total", "rows": "rows",
    "embedding_bytes": "embedding_bytes", "index_bytes": "index_bytes",
}  # fmt: skip
JOB = {
    "samples_trained": "samples_trained_total", "samples_left": "samples_left",
    "engine_cpu_s": "engine_cpu_seconds_total",
}  # fmt: skip
GROUP = {"replicas": "replicas", "cpu": "cpu_cores", "memory_bytes": "memory_bytes"}
_LOOKED = f"{PREFIX}looked_at_seconds"
_BATCH = f"{PREFIX}allocation_batch_size"
_GPUS = f"{PREFIX}allocation_gpus"
_LABELS = {"training_job", "run", "role", "replica", "group", "by", "kind"}
_LIMITED = f"{PREFIX}replica_limited"
_ROLE_OF = {f"{PREFIX}replica_{series}": name for name, series in REPLICA.items()}
_JOB_OF = {f"{PREFIX}{series}": name for name, series in JOB.items()}
_GROUP_OF = {f"{PREFIX}allocation_{series}": name for name, series in GROUP.items()}


class Sample(NamedTuple):
    """The value of one series."""

    name: str
    labels: dict[str, str]
    value: float


def query(job: str) -> str:
    """For all series of a job. `job` alone is a label of Prometheus' own."""
    return f'{{__name__=~"{PREFIX}.+",training_job={json.dumps(job)}}}'


def labels_of(job: str, run: str) -> dict[str, str]:
    """Labels that all series of a run have."""
    return {"training_job": job, "run": run}


def samples_of(at_s: float, metrics: Metrics, labels: dict[str, str]) -> Iterator[Sample]:
    """A look at a job, `at_s` seconds of the run's clock."""
    yield Sample(_LOOKED, labels, at_s)
    for name, series in JOB.items():
        if (value := getattr(metrics, name)) is not None:
            yield Sample(f"{PREFIX}{series}", labels, value)
    for replica in metrics.replicas:
        own = labels | {"role": replica.role, "replica": str(replica.index)}
        if replica.limited_by:
            yield Sample(_LIMITED, own | {"by": replica.limited_by}, 1.0)
        for name, series in REPLICA.items():
            if (value := getattr(replica, name)) is not None:
                yield Sample(f"{PREFIX}replica_{series}", own, value)
    if metrics.allocation:
        yield from _allocation_samples(metrics.allocation, labels)


def _allocation_samples(allocation: Allocation, labels: dict[str, str]) -> Iterator[Sample]:
    yield Sample(_BATCH, labels, allocation.batch_size)
    for role in ROLES:
        for number, group in enumerate(getattr(allocation, role)):
            own = labels | {"role": role, "group": str(number)}
            for name, series in GROUP.items():
                yield Sample(f"{PREFIX}allocation_{series}", own, getattr(group, name))
            if group.gpu:
                yield Sample(_GPUS, own | {"kind": group.gpu.kind}, group.gpu.count)


def latest_copy(samples: Iterable[Sample]) -> list[Sample]:
    """The samples of the newest scrape, where one run is scraped by several jobs or Prometheus servers.

    Values that are no finite number are left out; a loss may be NaN.
    """
    copies: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if isfinite(sample.value) or _ROLE_OF.get(sample.name) == "loss":
            scraped_by = {name: value for name, value in sample.labels.items() if name not in _LABELS}
            copies[json.dumps(scraped_by, sort_keys=True)].append(sample)
    newest = max(
        copies, key=lambda copy: max((s.value for s in copies[copy] if s.name == _LOOKED), default=-inf), default=""
    )
    return copies[newest]


def look_of(samples: Iterable[Sample]) -> tuple[float, Metrics]:
    """The look at one run that its samples are of; what else is told of it is passed over.

    Raises InputError where they are none, such as where half of them are missing.
    """
    told: dict[str, Any] = {}
    replicas: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    groups: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for name, labels, value in samples:
        replica = replicas[labels.get("role", ""), labels.get("replica", "")] if "replica" in labels else {}
        group = groups[labels.get("role", ""), labels.get("group", "")] if "group" in labels else {}
        if name in _ROLE_OF:
            replica[_ROLE_OF[name]] = value
        elif name == _LIMITED:
            replica["limited_by"] = labels.get("by")
        elif name in _GROUP_OF:
            group[_GROUP_OF[name]] = value
        elif name == _GPUS:
            group["gpu"] = {"kind": labels.get("kind"), "count": value}
        elif name in (_LOOKED, _BATCH, *_JOB_OF):
            told[_JOB_OF.get(name, name)] = value
    try:
        return _look(told, replicas, groups)
    except ValidationError as error:
        raise InputError(f"What Prometheus tells is no look at the job: {explain_first(error)}.") from None
    except (KeyError, ValueError) as error:
        raise InputError(f"What Prometheus tells is no look at the job: no {error}.") from None


def _look(
    told: dict[str, Any], replicas: dict[tuple[str, str], dict[str, Any]], groups: dict[tuple[str, str], dict[str, Any]]
) -> tuple[float, Metrics]:
    at_s, batch = told.pop(_LOOKED), told.pop(_BATCH, None)
    if batch is not None:
        sides = {role: [g for (r, _), g in sorted(groups.items(), key=_by_number) if r == role] for role in ROLES}
        told["allocation"] = {"batch_size": batch} | sides
    ordered = [
        checked(ReplicaMetrics, {"role": role, "index": int(index)} | sums)
        for (role, index), sums in sorted(replicas.items(), key=_by_number)
    ]
    return at_s, checked(Metrics, {"replicas": ordered} | told)


def _by_number(item: tuple[tuple[str, str], Any]) -> tuple[str, int]:
    (role, number), _ = item
    return role, int(number)
