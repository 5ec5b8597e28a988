"""The matching of current replicas with a new allocation: which stay, are resized, leave or are new."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from sizewright.spec import Allocation, Group, Resources, Role

T = TypeVar("T")


class Match(NamedTuple, Generic[T]):
    """Replicas that stay with their new sizes, replicas that leave, and the sizes of new replicas."""

    stay: list[tuple[T, Resources]]
    gone: list[T]
    new: list[Resources]


def match(present: Sequence[tuple[T, Resources]], wanted: Sequence[Resources], role: Role) -> Match[T]:
    """Match replicas with sizes so that as many as possible stay.

    Replicas of equal size are matched first, then those that can be resized while they train. A PS never gets less
    memory: its rows would not fit, and its process does not return freed memory.
    """
    unmatched = list(present)
    open_sizes = list(wanted)
    stay: list[tuple[T, Resources]] = []
    for fits in (_is_equal, _has_no_more_memory if role == "ps" else _has_same_gpu):
        # The smallest sizes choose first, since the fewest replicas fit them.
        for size in sorted(open_sizes, key=lambda size: size.memory_bytes or math.inf):
            pair = next((pair for pair in unmatched if fits(pair[1], size)), None)
            if pair is not None:
                unmatched.remove(pair)
                open_sizes.remove(size)
                stay.append((pair[0], size))
    order = {id(replica): i for i, (replica, _) in enumerate(present)}
    stay.sort(key=lambda pair: order[id(pair[0])])
    return Match(stay, [replica for replica, _ in unmatched], open_sizes)


def allocation_of(workers: Sequence[Resources], servers: Sequence[Resources], batch_size: int) -> Allocation:
    """Return the allocation of these replicas, with equal sizes in one group."""
    return Allocation(worker=_groups(workers), ps=_groups(servers), batch_size=batch_size)


def _groups(sizes: Sequence[Resources]) -> tuple[Group, ...]:
    counts: dict[Resources, int] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0) + 1
    return tuple(
        Group(replicas=count, cpu=size.cpu, memory_bytes=size.memory_bytes, gpu=size.gpu)
        for size, count in counts.items()
    )


def _is_equal(present: Resources, wanted: Resources) -> bool:
    return present == wanted


def _has_same_gpu(present: Resources, wanted: Resources) -> bool:
    return present.gpu == wanted.gpu


def _has_no_more_memory(present: Resources, wanted: Resources) -> bool:
    return present.gpu == wanted.gpu and (not wanted.memory_bytes or 0 < present.memory_bytes <= wanted.memory_bytes)
