"""How one capacity is divided over many jobs: each allocator is a function of the problem.

    from sizewright.cluster.allocators import get_allocator
    allotment = get_allocator("slope")(problem)

What an allocator of one's own needs is here too; `docs/extend.md` shows one.
"""

from sizewright.cluster.allocators._base import Allocator, by_arrival, facts_of, valued
from sizewright.cluster.allocators._ladder import Ladder, frontier
from sizewright.cluster.allocators.registry import allocator_names, get_allocator
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import Problem

__all__ = [
    "Allocator",
    "Allotment",
    "Facts",
    "Ladder",
    "Problem",
    "allocator_names",
    "by_arrival",
    "chosen",
    "facts_of",
    "frontier",
    "get_allocator",
    "valued",
]
