"""Allocators: one capacity divided over many jobs, one policy a file::

    from sizewright.cluster.allocators import get_allocator
    answer = get_allocator("default")(problem, time_limit_s=0.05)

One of your own is a subclass of `Allocator`; `docs/extend.md` shows one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.cluster.allocators._base import Allocator, by_arrival, facts_of, valued
    from sizewright.cluster.allocators._ladder import Ladder, frontier
    from sizewright.cluster.allocators.registry import allocator_names, get_allocator

_HOMES = {
    "Allocator": "sizewright.cluster.allocators._base",
    "Ladder": "sizewright.cluster.allocators._ladder",
    "allocator_names": "sizewright.cluster.allocators.registry",
    "by_arrival": "sizewright.cluster.allocators._base",
    "facts_of": "sizewright.cluster.allocators._base",
    "frontier": "sizewright.cluster.allocators._ladder",
    "get_allocator": "sizewright.cluster.allocators.registry",
    "valued": "sizewright.cluster.allocators._base",
}

__all__ = [
    "Allocator",
    "Ladder",
    "allocator_names",
    "by_arrival",
    "facts_of",
    "frontier",
    "get_allocator",
    "valued",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazily(__name__, _HOMES)
