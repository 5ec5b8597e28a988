"""Sets of samples, stored as few ranges, and the comparison of several such sets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Range = tuple[int, int]
"""Samples [start, end)."""


class SampleRanges:
    """A set of samples as sorted ranges that do not touch each other."""

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted((int(start), int(end)) for start, end in ranges):
            self.add(start, end)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._starts, self._ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def total(self) -> int:
        """Number of samples."""
        return sum(self._ends) - sum(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SampleRanges) and (self._starts, self._ends) == (other._starts, other._ends)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SampleRanges({list(self)})"

    def add(self, start: int, end: int) -> None:
        """Add the samples [start, end)."""
        if start >= end:
            return
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def count(self, start: int, end: int) -> int:
        """Return how many samples of [start, end) are in the set."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        return sum(
            min(b, end) - max(a, start) for a, b in zip(self._starts[low:high], self._ends[low:high], strict=True)
        )

    def covers(self, start: int, end: int) -> bool:
        """Return whether all samples of [start, end) are in the set."""
        at = bisect_right(self._starts, start) - 1
        return start >= end or (at >= 0 and end <= self._ends[at])

    def copy(self) -> SampleRanges:
        """Return an independent copy."""
        other = SampleRanges()
        other._starts, other._ends = self._starts.copy(), self._ends.copy()
        return other

    def union(self, other: SampleRanges) -> SampleRanges:
        """Return the samples of either set."""
        return SampleRanges([*self, *other])

    def minus(self, other: SampleRanges) -> SampleRanges:
        """Return the samples that are not in the other set."""
        return SampleRanges((a, b) for start, end in self for a, b in other.gaps(start, end))

    def gaps(self, start: int, end: int) -> list[Range]:
        """Return the ranges of [start, end) that are not in the set."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        edges = [start, *(x for i in range(low, high) for x in (self._starts[i], self._ends[i])), end]
        return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]

    def to_array(self) -> NDArray[np.int64]:
        """Return the ranges as an array (n, 2)."""
        return np.array(list(self), np.int64).reshape(-1, 2)


class Reconciled(NamedTuple):
    """The samples that all accounts have, that none has, and that only some have.

    No account has half of a range of `some`.
    """

    all: list[Range]
    none: list[Range]
    some: list[Range]


def reconcile(ranges: Iterable[Range], accounts: Sequence[SampleRanges]) -> Reconciled:
    """Compare accounts of applied samples within `ranges`. Without any account, nobody has a sample."""
    result = Reconciled([], [], [])
    for start, end in ranges:
        inner = {x for account in accounts for pair in account for x in pair if start < x < end}
        edges = [start, *sorted(inner), end]
        for a, b in pairwise(edges):
            count = sum(account.covers(a, b) for account in accounts)
            kind = result.none if not count else result.all if count == len(accounts) else result.some
            kind.append((a, b))
    return result
