"""Whether machines can hold an allocation: asked before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence

from sizewright.errors import EngineError, LimitError
from sizewright.spec import Allocation
from sizewright.spec.units import format_bytes, format_count
from sizewright.training.cgroups import MIN_QUOTA_US, PERIOD_US
from sizewright.training.machine import Offer

_LEAST_CORES = MIN_QUOTA_US / PERIOD_US


def check_allocation(allocation: Allocation, offers: Sequence[Offer]) -> None:
    """Raises EngineError for one that these machines cannot hold, or that has no worker or no PS."""
    if not allocation.replicas("worker") or not allocation.replicas("ps"):
        raise EngineError("The allocation needs at least one worker and one PS.", "Set replicas to 1 or more.")
    check_room(allocation, offers)
    whole = any(offer.tree is None for offer in offers)
    for size in (*allocation.each("worker"), *allocation.each("ps")):
        if size.cpu < _LEAST_CORES and not whole:
            raise LimitError(
                f"{size.cpu:g} cores are below the least that can be held steadily ({_LEAST_CORES:g}).",
                "Raise the least cpu in the job's bounds.",
            )


def check_room(allocation: Allocation, offers: Sequence[Offer]) -> None:
    """Raises EngineError for more cores or memory than these machines have in all."""
    cores, memory_bytes = sum(offer.cores for offer in offers), sum(offer.memory_bytes for offer in offers)
    if allocation.cores() > cores + 1e-9:
        where = "this host has" if len(offers) == 1 else f"the {len(offers)} machines have"
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
