"""Resources of all replicas together, where a user's manifest states them: for a gang, or as a limit of the job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from sizewright.executors.kubernetes.container_spec import ContainerSpec, YamlMap, all_containers, expect_mapping
from sizewright.formatting import cpu_quantity, memory_quantity
from sizewright.spec.units import read_bytes, read_cores

_AMOUNTS = ("cpu", "memory")


class _PodRequest(NamedTuple):
    """One resource amount of a pod, in cores or bytes."""

    running: float
    """The sum over the containers that run together, native sidecars included."""
    init: float
    """The largest sum at any step of the init containers."""
    overhead: float

    @property
    def effective(self) -> float:
        """The amount that the scheduler reserves for the pod."""
        return max(self.running, self.init) + self.overhead


def fit_total(totals: Any, field: str, entries: Mapping[str, YamlMap], counts: Mapping[str, int]) -> Iterator[str]:
    """Write the sum of all replicas' requests into those totals that the manifest has.

    Yield a sentence for each total that stays unchanged because not all containers state their request.
    """
    if not isinstance(totals, MutableMapping):
        return
    for amount in (name for name in _AMOUNTS if name in totals):
        total, is_complete = _total_request(amount, entries, counts)
        if is_complete:
            totals[amount] = _quantity(amount, total)
        else:
            yield f"{field}.{amount} stays {totals[amount]}: not all containers state how much they request."


def beyond_total(limits: Any, field: str, entries: Mapping[str, YamlMap]) -> Iterator[str]:
    """Yield a sentence for each limit of the job that is below the sum of all replicas' requests."""
    if not isinstance(limits, Mapping):
        return
    counts = {name: ContainerSpec(name, entry, {}).replicas for name, entry in entries.items()}
    for amount in (name for name in _AMOUNTS if name in limits):
        total, _ = _total_request(amount, entries, counts)
        read = read_cores if amount == "cpu" else read_bytes
        if read(limits[amount], f"{field}.{amount}") < total:
            yield (
                f"{field}.{amount} is {limits[amount]}, but the replicas request {_quantity(amount, total)} in total: "
                "raise it."
            )


def beyond_container(spec: ContainerSpec) -> Iterator[str]:
    """Yield a sentence for each reason why a pod takes more than its containers request.

    Kubernetes takes the request of the largest init container where that is higher, and adds native sidecars and the
    pod's overhead. No plan can reduce these.
    """
    if not spec.has_pod:
        return
    pod = expect_mapping(expect_mapping(spec.entry.get("template"), spec.field).get("spec"), spec.field)
    for amount in _AMOUNTS:
        request = _pod_request(pod, amount, spec.field)
        if request.init > request.running:
            yield (
                f"{spec.field}: an init container requests {_quantity(amount, request.init)} of {amount}, more than "
                f"the {_quantity(amount, request.running)} of the containers that run after it: each pod takes the "
                "larger amount. Lower the request of the init container."
            )
        if request.overhead:
            overhead = _quantity(amount, request.overhead)
            yield f"{spec.field}: the pod's overhead adds {overhead} of {amount} to each pod."
        pod_amounts = ContainerSpec(f"{spec.field}: the pod's", {}, pod).amounts()
        if amount in pod_amounts:
            yield f"{spec.field}: the pod itself requests {pod_amounts[amount]} of {amount}; this stays unchanged."


def _pod_request(pod: YamlMap, amount: str, field: str) -> _PodRequest:
    sidecars = largest = 0.0
    for container in pod.get("initContainers") or []:
        request = _container_request(expect_mapping(container, f"{field}: initContainers"), amount) or 0.0
        if container.get("restartPolicy") == "Always":  # a native sidecar starts before the next one and keeps running
            sidecars += request
            largest = max(largest, sidecars)
        else:
            largest = max(largest, sidecars + request)
    running = sum(_container_request(each, amount) or 0.0 for each in all_containers({"spec": pod}, field))
    overhead = ContainerSpec(f"{field}: the overhead as", {}, {"resources": {"requests": pod.get("overhead") or {}}})
    return _PodRequest(running + sidecars, largest, _size(overhead, amount) or 0.0)


def _container_request(container: YamlMap, amount: str) -> float | None:
    return _size(ContainerSpec(f"container {container.get('name')}", {}, container), amount)


def _size(spec: ContainerSpec, amount: str) -> float | None:
    sizes = spec.sizes()
    return sizes.cpu if amount == "cpu" else sizes.memory_bytes


def _total_request(amount: str, entries: Mapping[str, YamlMap], counts: Mapping[str, int]) -> tuple[float, bool]:
    """Return the sum of all replicas' requests, and whether all their containers state one."""
    total, is_complete = 0.0, True
    for name, entry in entries.items():
        if "template" not in entry:
            is_complete = False
            continue
        containers = all_containers(entry.get("template"), name)
        is_complete = is_complete and all(_container_request(each, amount) is not None for each in containers)
        total += counts[name] * _pod_request(entry["template"]["spec"], amount, name).effective
    return total, is_complete


def _quantity(amount: str, total: float) -> str:
    return cpu_quantity(total) if amount == "cpu" else memory_quantity(math.ceil(total))
