"""Resources of all replicas together, where a manifest of the user's says them: of a gang, or as a limit of the job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from sizewright.executors.slots import Node, Slot, all_containers, node
from sizewright.spec.units import cpu_quantity, memory_quantity, read_bytes, read_cores

_AMOUNTS = ("cpu", "memory")


def fit_total(found: Any, field: str, entries: Mapping[str, Node], counts: Mapping[str, int]) -> Iterator[str]:
    """Write what so many replicas ask for into an amount that is there; say where not all of them say how much."""
    if not isinstance(found, MutableMapping):
        return
    for amount in (name for name in _AMOUNTS if name in found):
        total, complete = _asked(amount, entries, counts)
        if complete:
            found[amount] = _written(amount, total)
        else:
            yield f"{field}.{amount} stays {found[amount]}: not all replicas say how much they ask for."


def beyond_total(limits: Any, field: str, entries: Mapping[str, Node]) -> Iterator[str]:
    """Say where all replicas ask for more than a limit that is there."""
    if not isinstance(limits, Mapping):
        return
    counts = {name: Slot(name, entry, {}).replicas for name, entry in entries.items()}
    for amount in (name for name in _AMOUNTS if name in limits):
        total, _ = _asked(amount, entries, counts)
        read = read_cores if amount == "cpu" else read_bytes
        if read(limits[amount], f"{field}.{amount}") < total:
            yield (
                f"{field}.{amount} is {limits[amount]}, and the replicas ask for {_written(amount, total)} in all: "
                "raise it."
            )


def beyond_container(slot: Slot) -> Iterator[str]:
    """Say where a pod asks for more than its containers, which no plan can shrink: Kubernetes takes the largest init
    container where that asks for more, and adds native sidecars and the pod's overhead."""
    pod = node(node(slot.counted.get("template"), slot.field).get("spec"), slot.field)
    for amount in _AMOUNTS:
        running, largest, overhead = _pod(pod, amount, slot.field)
        if largest > running:
            yield (
                f"{slot.field}: an init container asks for {_written(amount, largest)} of {amount}, and what runs then "
                f"for {_written(amount, running)}: each pod takes the larger all the same. Lower it there."
            )
        if overhead:
            yield f"{slot.field}: the pod's overhead adds {_written(amount, overhead)} of {amount} to each pod."
        own = Slot(f"{slot.field}: the pod's", {}, pod).told()
        if amount in own:
            yield f"{slot.field}: the pod itself asks for {own[amount]} of {amount}, which counts and stays."


def _pod(pod: Node, amount: str, field: str) -> tuple[float, float, float]:
    """What the containers that run together ask for, what the largest step of the init containers does, and the
    overhead."""
    sidecars = largest = 0.0
    for each in pod.get("initContainers") or []:
        asked = _of_container(node(each, f"{field}: initContainers"), amount) or 0.0
        if each.get("restartPolicy") == "Always":  # it starts before the next and runs on
            sidecars += asked
        largest = max(largest, sidecars + (0.0 if each.get("restartPolicy") == "Always" else asked))
    running = sum(_of_container(each, amount) or 0.0 for each in all_containers({"spec": pod}, field))
    overhead = Slot(f"{field}: the overhead as", {}, {"resources": {"requests": pod.get("overhead") or {}}})
    return (
        running + sidecars,
        largest,
        (overhead.sizes().cpu if amount == "cpu" else overhead.sizes().memory_bytes) or 0.0,
    )


def _of_container(container: Node, amount: str) -> float | None:
    sizes = Slot(f"container {container.get('name')}", {}, container).sizes()
    return sizes.cpu if amount == "cpu" else sizes.memory_bytes


def _asked(amount: str, entries: Mapping[str, Node], counts: Mapping[str, int]) -> tuple[float, bool]:
    """What so many replicas ask for, and whether all containers of them say it."""
    total, complete = 0.0, True
    for name, entry in entries.items():
        containers = all_containers(entry.get("template"), name) if "template" in entry else []
        complete = complete and bool(containers)
        complete = complete and all(_of_container(each, amount) is not None for each in containers)
        if containers:
            running, largest, overhead = _pod(entry["template"]["spec"], amount, name)
            total += counts[name] * (max(running, largest) + overhead)
    return total, complete


def _written(amount: str, total: float) -> str:
    return cpu_quantity(total) if amount == "cpu" else memory_quantity(math.ceil(total))
