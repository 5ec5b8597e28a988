"""What a parameter server has applied: for each part of its weights the samples whose gradients are in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.leases.sample_ranges import Range, SampleRanges
from sizewright.training.routing import ALL_PARTS, PARTS, Parts


class AppliedGroup(NamedTuple):
    """Parts (n,) of the weights, and the samples that are applied to each of them."""

    parts: Parts
    samples: SampleRanges


class AppliedSamples:
    """The account of one server. Parts with the same samples are one group; mostly there is one.

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
        """Set the samples of parts, which may be new."""
        self._group_of[parts] = len(self._samples)
        self._samples.append(samples.copy())
        self._merge()

    @property
    def parts(self) -> Parts:
        """Parts that are known."""
        return np.flatnonzero(self._group_of >= 0)

    def updated(self, other: AppliedSamples) -> AppliedSamples:
        """Return this account, with what another one says of its parts."""
        result = AppliedSamples([*self.groups(), *other.groups()])
        result.repeated = max(self.repeated, other.repeated)
        return result

    def keep(self, parts: Parts) -> AppliedSamples:
        """Return the account of these parts alone; those that are not known are left out."""
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
        """Return whether samples are applied to the known parts of a slice of the numbers: one answer for all, or an
        array (PARTS,) where they differ.

        Samples of which a part has some and lacks others are to be applied, since nobody can divide their gradient;
        `repeated` counts those.
        """
        answers: list[bool | None] = []
        concerned = self._members(parts) > 0 if len(self._samples) > 1 else [True]
        for samples, asked in zip(self._samples, concerned, strict=True):
            if not asked:
                answers.append(None)
                continue
            has = bool(ranges) and all(samples.covers(*each) for each in ranges)
            if not has:
                self.repeated += sum(samples.count(*each) for each in ranges)
            answers.append(has)
        known = {answer for answer in answers if answer is not None}
        if len(known) < 2:
            return known == {True}
        return np.array([*answers, False], bool)[self._group_of]

    def add(self, ranges: Sequence[Range], parts: slice) -> None:
        """Note that samples are applied to all known parts of a slice of the numbers."""
        if len(self._samples) == 1 and parts == ALL_PARTS:
            for start, end in ranges:
                self._samples[0].add(start, end)
            return
        inside = np.zeros(PARTS, bool)
        inside[parts] = True
        for i in range(len(self._samples)):
            members = self._group_of == i
            if not (members & ~inside).any():
                mine = self._samples[i]
            elif (members & inside).any():
                mine = self._samples[i].copy()
                self._group_of[members & inside] = len(self._samples)
                self._samples.append(mine)
            else:
                continue
            for start, end in ranges:
                mine.add(start, end)
        if len(self._samples) > 1:
            self._merge()

    def _members(self, parts: slice) -> NDArray[np.int64]:
        """How many parts of a slice each group has."""
        return np.bincount(self._group_of[parts] + 1, minlength=len(self._samples) + 1)[1:]

    def _merge(self) -> None:
        """Make one group of those with the same samples, and drop those without parts."""
        numbers = np.full(len(self._samples) + 1, -1, np.int64)
        kept: list[SampleRanges] = []
        members = self._members(ALL_PARTS)
        for i, samples in enumerate(self._samples):
            if not members[i]:
                continue
            same = next((n for n, other in enumerate(kept) if other == samples), None)
            if same is None:
                same = len(kept)
                kept.append(samples)
            numbers[i] = same
        self._group_of = numbers[self._group_of]
        self._samples = kept
