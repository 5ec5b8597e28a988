"""Which replicas stay, are resized, go or come when an allocation changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from sizewright.spec import Allocation, Group, Resources, Role

T = TypeVar("T")


class Match(NamedTuple, Generic[T]):
    """Replicas that stay with the size that they are to have, replicas that go, and sizes of those to come."""

    stay: list[tuple[T, Resources]]
    gone: list[T]
    new: list[Resources]


def match(present: Sequence[tuple[T, Resources]], wanted: Sequence[Resources], role: Role) -> Match[T]:
    """As many as possible stay: equal ones first, then those that can be resized while they train.

    A PS never stays with less memory: its rows would not fit, and what it has freed it keeps.
    """
    left, open_ = list(present), list(wanted)
    stay: list[tuple[T, Resources]] = []
    for fits in (_equal, _shrinkable if role == "ps" else _any):
        for size in sorted(open_, key=lambda size: size.memory_bytes or math.inf):  # those that few fit choose first
            found = next((pair for pair in left if fits(pair[1], size)), None)
            if found is not None:
                left.remove(found)
                open_.remove(size)
                stay.append((found[0], size))
    order = {id(replica): i for i, (replica, _) in enumerate(present)}
    return Match(sorted(stay, key=lambda pair: order[id(pair[0])]), [replica for replica, _ in left], open_)


def allocation_of(workers: Sequence[Resources], servers: Sequence[Resources], batch_size: int) -> Allocation:
    """The allocation of these replicas, equal sizes gathered in groups."""
    return Allocation(worker=_groups(workers), ps=_groups(servers), batch_size=batch_size)


def _groups(sizes: Sequence[Resources]) -> tuple[Group, ...]:
    counts: dict[Resources, int] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0) + 1
    return tuple(
        Group(replicas=count, cpu=size.cpu, memory_bytes=size.memory_bytes, gpu=size.gpu)
        for size, count in counts.items()
    )


def _equal(has: Resources, wanted: Resources) -> bool:
    return has == wanted


def _any(has: Resources, wanted: Resources) -> bool:
    return has.gpu == wanted.gpu


def _shrinkable(has: Resources, wanted: Resources) -> bool:
    return has.gpu == wanted.gpu and (not wanted.memory_bytes or 0 < has.memory_bytes <= wanted.memory_bytes)
