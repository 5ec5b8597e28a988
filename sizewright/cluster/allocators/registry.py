"""Allocators by name."""

from __future__ import annotations

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators.aryl import Aryl
from sizewright.cluster.allocators.default import Default
from sizewright.cluster.allocators.doubling import Doubling
from sizewright.cluster.allocators.dynamic import Dynamic
from sizewright.cluster.allocators.elastic_tiresias import ElasticTiresias
from sizewright.cluster.allocators.fifo import Fifo
from sizewright.cluster.allocators.hull import HullGreedy
from sizewright.cluster.allocators.lagrangian import Lagrangian
from sizewright.cluster.allocators.mip import Mip
from sizewright.cluster.allocators.progress_mip import ProgressMip
from sizewright.cluster.allocators.shortest_first import ShortestFirst
from sizewright.cluster.allocators.sia import Sia
from sizewright.cluster.allocators.slope import SlopeGreedy
from sizewright.cluster.allocators.weighted_greedy import WeightedGreedy
from sizewright.errors import InputError

__all__ = ["ALLOCATORS", "get_allocator"]

ALLOCATORS: dict[str, type[Allocator]] = {
    kind.name: kind
    for kind in (
        Default, Fifo, ShortestFirst, Doubling, SlopeGreedy, HullGreedy, Dynamic, Mip, Lagrangian, WeightedGreedy,
        ProgressMip, ElasticTiresias, Aryl, Sia,
    )
}  # fmt: skip


def get_allocator(name: str) -> Allocator:
    """A new allocator of that name; `ALLOCATORS` has them. Raises InputError where there is none."""
    if name not in ALLOCATORS:
        raise InputError(f"There is no policy '{name}'.", f"Known: {', '.join(sorted(ALLOCATORS))}.")
    return ALLOCATORS[name]()
