"""Resources of all replicas together, where a manifest of the user's says them: of a gang, or as a limit of the job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from sizewright.executors.slots import Node, Slot, all_containers
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


def _asked(amount: str, entries: Mapping[str, Node], counts: Mapping[str, int]) -> tuple[float, bool]:
    """What so many replicas ask for, and whether all containers of them say it."""
    total, complete = 0.0, True
    for name, entry in entries.items():
        containers = all_containers(entry.get("template"), name) if "template" in entry else []
        complete = complete and bool(containers)
        for container in containers:
            sizes = Slot(name, entry, container).sizes()
            one = sizes.cpu if amount == "cpu" else sizes.memory_bytes
            total += counts[name] * (one or 0)
            complete = complete and one is not None
    return total, complete


def _written(amount: str, total: float) -> str:
    return cpu_quantity(total) if amount == "cpu" else memory_quantity(math.ceil(total))
