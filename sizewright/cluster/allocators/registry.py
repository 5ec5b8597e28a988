"""Allocators by name. Other packages register theirs in the entry-point group `sizewright.allocators`."""

from __future__ import annotations

from sizewright.cluster.allocators._base import Allocator
from sizewright.errors import InputError
from sizewright.plugins import Plugins

ALLOCATORS = {
    "default": "sizewright.cluster.allocators.default:Default",
    "fifo": "sizewright.cluster.allocators.fifo:Fifo",
    "fifo-backfill": "sizewright.cluster.allocators.fifo_backfill:FifoBackfill",
    "sjf": "sizewright.cluster.allocators.shortest_first:ShortestFirst",
    "srsf": "sizewright.cluster.allocators.srsf:ShortestService",
    "tiresias": "sizewright.cluster.allocators.tiresias:Tiresias",
    "doubling": "sizewright.cluster.allocators.doubling:Doubling",
    "slope": "sizewright.cluster.allocators.slope:SlopeGreedy",
    "hull": "sizewright.cluster.allocators.hull:HullGreedy",
    "dynamic": "sizewright.cluster.allocators.dynamic:Dynamic",
    "mip": "sizewright.cluster.allocators.mip:Mip",
    "lagrangian": "sizewright.cluster.allocators.lagrangian:Lagrangian",
    "weighted-greedy": "sizewright.cluster.allocators.weighted_greedy:WeightedGreedy",
    "progress-mip": "sizewright.cluster.allocators.progress_mip:ProgressMip",
    "elastic-tiresias": "sizewright.cluster.allocators.elastic_tiresias:ElasticTiresias",
    "aryl": "sizewright.cluster.allocators.aryl:Aryl",
    "sia": "sizewright.cluster.allocators.sia:Sia",
}
"""The allocators that come with Sizewright, and their import paths."""
_ALLOCATORS = Plugins(
    noun="policy", group="sizewright.allocators", builtin=ALLOCATORS, contract="AllocatorContract", base=Allocator
)


def allocator_names() -> tuple[str, ...]:
    """Return all names, the default first, those of other packages last.

    An allocator of another package that cannot be loaded is left out with a warning.
    """
    return tuple(_ALLOCATORS.names())


def get_allocator(policy: str | Allocator) -> Allocator:
    """Return a new allocator of this name, or the allocator that is given.

    Settings may follow the name and a colon: the thresholds of `tiresias:3250:7200`. Raises InputError for an unknown
    name, and for settings that the policy does not have.
    """
    if isinstance(policy, Allocator):
        return policy
    if not isinstance(policy, str):
        raise InputError(f"{policy!r} is not a policy.", "Give a name, or an instance of a subclass of Allocator.")
    name, colon, settings = policy.partition(":")
    found: type[Allocator] = _ALLOCATORS.find(name)
    return found.of_settings(settings) if colon else found()
