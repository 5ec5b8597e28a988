"""Allocators divide one capacity among many jobs; there is one policy per file::

    from sizewright.cluster.allocators import get_allocator
    answer = get_allocator("default")(problem, time_limit_s=0.05)

An allocator of your own is a subclass of `Allocator`; `docs/extend.md` shows one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.cluster.allocators._base import Allocator, by_arrival, scheduler_state_of, valued
    from sizewright.cluster.allocators._greedy_upgrades import GreedyUpgrades, frontier
    from sizewright.cluster.allocators.registry import allocator_names, get_allocator

_HOMES = {
    "Allocator": "sizewright.cluster.allocators._base",
    "GreedyUpgrades": "sizewright.cluster.allocators._greedy_upgrades",
    "allocator_names": "sizewright.cluster.allocators.registry",
    "by_arrival": "sizewright.cluster.allocators._base",
    "scheduler_state_of": "sizewright.cluster.allocators._base",
    "frontier": "sizewright.cluster.allocators._greedy_upgrades",
    "get_allocator": "sizewright.cluster.allocators.registry",
    "valued": "sizewright.cluster.allocators._base",
}

__all__ = [
    "Allocator",
    "GreedyUpgrades",
    "allocator_names",
    "by_arrival",
    "frontier",
    "get_allocator",
    "scheduler_state_of",
    "valued",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
