"""Checks that machines can hold an allocation, before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence

from sizewright.errors import EngineError, LimitError
from sizewright.formatting import format_bytes, format_count
from sizewright.spec import Allocation
from sizewright.training.host.cgroups import MIN_QUOTA_US, PERIOD_US
from sizewright.training.ray.node_agent import NodeResources

_MIN_CORES = MIN_QUOTA_US / PERIOD_US


def check_allocation(allocation: Allocation, node_resources: Sequence[NodeResources]) -> None:
    """Raise EngineError if the machines cannot hold the allocation, or if it has no worker or no PS."""
    if not allocation.replicas("worker") or not allocation.replicas("ps"):
        raise EngineError("The allocation needs at least one worker and one PS.", "Set replicas to 1 or more.")
    check_room(allocation, node_resources)
    has_cgroups = all(available.tree is not None for available in node_resources)
    for size in (*allocation.each("worker"), *allocation.each("ps")):
        if size.cpu < _MIN_CORES and has_cgroups:
            raise LimitError(
                f"A limit of {size.cpu:g} cores is below the minimum of {_MIN_CORES:g} that works steadily.",
                "Raise the minimum cpu in the job's bounds.",
            )


def check_room(allocation: Allocation, node_resources: Sequence[NodeResources]) -> None:
    """Raise EngineError if the allocation needs more cores, memory or GPUs than the machines have in total."""
    cores = sum(available.cores for available in node_resources)
    memory_bytes = sum(available.memory_bytes for available in node_resources)
    gpus = sum(available.gpus for available in node_resources)
    where = "this host has" if len(node_resources) == 1 else f"the {len(node_resources)} machines have"
    if allocation.gpus() > gpus:
        raise EngineError(
            f"The allocation asks for {format_count(allocation.gpus(), 'GPU')} and {where} {gpus or 'none'}.",
            "Ask for fewer, or run on a host with as many.",
        )
    if allocation.cores() > cores + 1e-9:
        raise EngineError(
            f"The allocation asks for {format_count(allocation.cores(), 'core')} and {where} {cores:g}.",
            "Ask for fewer, or run on a larger host.",
        )
    if allocation.memory_bytes() > memory_bytes:
        raise EngineError(
            f"The allocation asks for {format_bytes(allocation.memory_bytes())} of memory and "
            f"{format_bytes(memory_bytes)} were free when the session began.",
            "Ask for less, or run on a larger host.",
        )
