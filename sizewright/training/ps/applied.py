"""The samples that a parameter server has settled, for each part of its weights.

A sample is settled in a part if its gradient was applied there, or if the part has lost it and it was written off: it
was counted as lost, and is not trained again. In names, "applied" means settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.leases.sample_ranges import Range, SampleRanges
from sizewright.training.ps.routing import ALL_PARTS, PARTS, Parts


class AppliedGroup(NamedTuple):
    """Parts (n,) of the weights, and the samples that are settled in each of them."""

    parts: Parts
    samples: SampleRanges


class AppliedSamples:
    """The settled samples of one server. Parts with the same samples form one group; mostly there is one.

    Parts are numbered as in `routing`: partitions of the rows first, then blocks of the dense weights.
    """

    def __init__(self, groups: Iterable[AppliedGroup] = ()) -> None:
        self._group_of = np.full(PARTS, -1, np.int64)
        self._samples: list[SampleRanges] = []
        self.repeated = 0
        """Samples that were applied to a part a second time."""
        for parts, samples in groups:
            self.put(parts, samples)

    def put(self, parts: Parts, samples: SampleRanges) -> None:
        """Set the settled samples of parts, which may be new."""
        self._group_of[parts] = len(self._samples)
        self._samples.append(samples.copy())
        self._merge()

    @property
    def parts(self) -> Parts:
        """All known parts."""
        return np.flatnonzero(self._group_of >= 0)

    def updated(self, other: AppliedSamples) -> AppliedSamples:
        """Return a copy in which the entries of `other` replace those of its parts."""
        result = AppliedSamples([*self.groups(), *other.groups()])
        result.repeated = max(self.repeated, other.repeated)
        return result

    def keep(self, parts: Parts) -> AppliedSamples:
        """Return the entries of these parts alone; unknown parts are left out."""
        kept = AppliedSamples()
        kept._group_of[parts] = self._group_of[parts]
        kept._samples = [samples.copy() for samples in self._samples]
        kept._merge()
        return kept

    def groups(self) -> list[AppliedGroup]:
        """Return all groups; the samples are copies."""
        return [
            AppliedGroup(np.flatnonzero(self._group_of == i), samples.copy()) for i, samples in enumerate(self._samples)
        ]

    def covered(self, ranges: Sequence[Range], parts: slice) -> NDArray[np.bool_] | bool:
        """Return whether samples are settled in the known parts within a slice of part numbers.

        The result is one bool if all parts agree, else an array (PARTS,). A part that has only some of the samples does
        not cover them: all are to be applied again, since their gradient cannot be divided.
        """
        by_group = self._covered_by_group(ranges, parts)
        answers = {covered for covered in by_group if covered is not None}
        if len(answers) < 2:
            return answers == {True}
        return np.array([*by_group, False], bool)[self._group_of]

    def count_partly_covered(self, ranges: Sequence[Range], parts: slice) -> int:
        """Return how many of the samples are settled in parts within a slice that do not cover all of them.

        Samples count once for each group of parts.
        """
        by_group = self._covered_by_group(ranges, parts)
        return sum(
            samples.count(*each)
            for samples, covered in zip(self._samples, by_group, strict=True)
            if covered is False
            for each in ranges
        )

    def add(self, ranges: Sequence[Range], parts: slice) -> None:
        """Record that samples were applied to all known parts within a slice of part numbers."""
        if len(self._samples) == 1 and parts == ALL_PARTS:
            for start, end in ranges:
                self._samples[0].add(start, end)
            return
        inside = np.zeros(PARTS, bool)
        inside[parts] = True
        for i in range(len(self._samples)):
            members = self._group_of == i
            if not (members & ~inside).any():
                samples = self._samples[i]
            elif (members & inside).any():
                samples = self._samples[i].copy()
                self._group_of[members & inside] = len(self._samples)
                self._samples.append(samples)
            else:
                continue
            for start, end in ranges:
                samples.add(start, end)
        if len(self._samples) > 1:
            self._merge()

    def _covered_by_group(self, ranges: Sequence[Range], parts: slice) -> list[bool | None]:
        """Return whether each group has all samples; None for a group without parts in the slice."""
        is_concerned = self._group_sizes(parts) > 0 if len(self._samples) > 1 else [True]
        return [
            bool(ranges) and all(samples.covers(*each) for each in ranges) if concerned else None
            for samples, concerned in zip(self._samples, is_concerned, strict=True)
        ]

    def _group_sizes(self, parts: slice) -> NDArray[np.int64]:
        """Return how many parts of a slice each group has."""
        return np.bincount(self._group_of[parts] + 1, minlength=len(self._samples) + 1)[1:]

    def _merge(self) -> None:
        """Unite groups with the same samples, and drop groups without parts."""
        new_numbers = np.full(len(self._samples) + 1, -1, np.int64)
        distinct: list[SampleRanges] = []
        sizes = self._group_sizes(ALL_PARTS)
        for i, samples in enumerate(self._samples):
            if not sizes[i]:
                continue
            number = next((n for n, other in enumerate(distinct) if other == samples), None)
            if number is None:
                number = len(distinct)
                distinct.append(samples)
            new_numbers[i] = number
        self._group_of = new_numbers[self._group_of]
        self._samples = distinct
