"""What Kueue has reserved for a job, in the Workload that it keeps for each job of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sizewright.errors import InputError, SizewrightError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.spec import Group
from sizewright.spec.units import read_bytes, read_cores

_QUEUE = "kueue.x-k8s.io/queue-name"
_JOB_UID = "kueue.x-k8s.io/job-uid"
_VERSIONS = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
Reserved = Mapping[str, Any]


def is_queued(job_object: Mapping[str, Any]) -> bool:
    """Return whether a job waits in a queue of Kueue before it starts."""
    return _QUEUE in (job_object["metadata"].get("labels") or {})


def reserved(api: KubeApi, job_object: Mapping[str, Any]) -> dict[str, Reserved]:
    """Return the amounts that Kueue has reserved for each entry of a job, by name; empty if it cannot be asked."""
    meta = job_object["metadata"]
    for version in _VERSIONS:
        try:
            workloads = api.list(version, "Workload", meta["namespace"], f"{_JOB_UID}={meta.get('uid')}")
        except SizewrightError:
            continue
        for workload in workloads:
            admission = (workload.get("status") or {}).get("admission") or {}
            return {each["name"].lower(): each.get("resourceUsage") or {} for each in admission["podSetAssignments"]}
    return {}


def fits(amounts: Reserved | None, group: Group) -> bool:
    """Return whether reserved amounts are enough for a group of replicas."""
    try:
        cores = read_cores((amounts or {}).get("cpu"), "cpu")
        memory = read_bytes((amounts or {})["memory"], "memory") if group.memory_bytes else 0
    except (InputError, KeyError):
        return False
    return group.replicas * group.cpu <= cores * (1 + 1e-9) and group.replicas * group.memory_bytes <= memory
