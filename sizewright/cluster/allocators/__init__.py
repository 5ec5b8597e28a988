"""Allocators: one capacity divided over many jobs, one policy a file::

    from sizewright.cluster.allocators import get_allocator
    answer = get_allocator("default")(problem, time_limit_s=0.05)

One of your own is a subclass of `Allocator` with a `name` and `choose`; put into `ALLOCATORS` under its name, it is
known to `sizewright.allocate` and `sizewright.simulate`, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.cluster.allocators._base import Allocator, by_arrival
    from sizewright.cluster.allocators.registry import ALLOCATORS, get_allocator

_HOMES = {
    "ALLOCATORS": "sizewright.cluster.allocators.registry",
    "Allocator": "sizewright.cluster.allocators._base",
    "by_arrival": "sizewright.cluster.allocators._base",
    "get_allocator": "sizewright.cluster.allocators.registry",
}

__all__ = [
    "ALLOCATORS",
    "Allocator",
    "by_arrival",
    "get_allocator",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazily(__name__, _HOMES)
