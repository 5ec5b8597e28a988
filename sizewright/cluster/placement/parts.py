"""Divide a large cluster into parts, so that one job is placed in each of them at the same time.

With few servers there is one part, and jobs are placed one after the other. In a large cluster a job goes to a part in
which it takes an eighth at most; the parts are joined, eight at a time, for jobs that are larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sizewright.cluster.placement.placement import Placement
from sizewright.cluster.problem.problem import ROUNDING, Bools, Floats, Ints

MAX_UNDIVIDED = 1000
"""A cluster with more servers than these is divided."""
PART = 64
"""The least mean number of servers of a part."""
JOINED = 8
"""Number of parts that are joined for larger jobs, and least number of jobs of the same size for which a part is."""


class Wave(NamedTuple):
    """Jobs that are placed at once, each in a part of its own where the servers are divided into `parts`."""

    rows: Ints
    """(n,)."""
    in_part: Ints
    """(n,)."""
    parts: int

    def only(self, rows: Ints | Bools) -> Wave:
        """Return the wave with some of its jobs only."""
        return Wave(self.rows[rows], self.in_part[rows], self.parts)


def number_of_parts(servers: int) -> int:
    """Return the number of parts of a cluster, a power of two."""
    return 1 if servers <= MAX_UNDIVIDED else 1 << int(np.log2(servers / PART))


def waves(
    placement: Placement, count: Ints, need: Floats, home: Ints, more: Floats | None = None, *, joined: bool = False
) -> Iterator[Wave]:
    """Yield the n jobs in waves, in their order within each part; the largest jobs come first.

    Job i has groups of count[i, g] replicas, which need need[i, g] (n, G, R) each. It goes to the part of the slot
    home[i], or, where that is −1, to one with much free capacity; with `joined`, to a larger part than it needs.
    Jobs are left out if they need more[i] (n, R) than their part has.
    """
    if placement.parts == 1:
        zero = np.zeros(1, dtype=np.intp)
        for row in range(len(count)):
            yield Wave(np.array([row]), zero, 1)
        return
    total = (count[:, :, None] * need).sum(axis=1)
    share = np.maximum(placement.share_of(count, need), 1e-12)
    divisions = [placement.parts]
    while divisions[-1] > 1:
        divisions.append(max(divisions[-1] // JOINED, 1))
    division = (share[:, None] * JOINED * np.array(divisions) > 1.0).sum(axis=1) + joined
    for number, parts in reversed(list(enumerate(divisions))):
        rows = np.flatnonzero(np.minimum(division, len(divisions) - 1) == number)
        if not len(rows):
            continue
        in_part = _deal(placement, total[rows], home[rows], parts)
        if more is not None:
            fits = (more[rows] <= placement.free_in(parts)[in_part] * (1 + ROUNDING)).all(axis=1)
            rows, in_part = rows[fits], in_part[fits]
        by_part = np.argsort(in_part, kind="stable")
        numbers = np.bincount(in_part, minlength=parts)
        turn = np.empty(len(rows), dtype=np.intp)
        turn[by_part] = np.arange(len(rows)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        by_turn = np.argsort(turn, kind="stable")
        ends = np.cumsum(np.bincount(turn)).tolist()
        for start, end in pairwise([0, *ends]):
            one = by_turn[start:end]
            yield Wave(rows[one], in_part[one], parts)


def _deal(placement: Placement, need: Floats, home: Ints, parts: int) -> Ints:
    """Return a part (n,) for each job: that of its home, or one that has much of what the job needs (n, R) most.

    The jobs are dealt in rounds, of one job for each part at most; in each, those that need most of a resource go to
    the parts that have most of it.
    """
    in_part = np.where(home >= 0, placement.part_of_slot(home, parts), 0)
    if parts == 1:
        return in_part
    free = placement.free_in(parts)
    at_home = home >= 0
    np.subtract.at(free, in_part[at_home], need[at_home])
    most_needed = (need / np.maximum(placement.servers.capacity.sum(axis=0), 1e-300)).argmax(axis=1)
    others = np.flatnonzero(~at_home)
    for start in range(0, len(others), parts):
        block = others[start : start + parts]
        for r in np.unique(most_needed[block]):
            jobs = block[most_needed[block] == r]
            jobs = jobs[np.argsort(-need[jobs, r], kind="stable")]
            freest = np.argsort(-free[:, r], kind="stable")
            freest = freest[: max(np.count_nonzero(free[:, r] > 0), 1)]
            in_part[jobs] = np.resize(freest, len(jobs))
            np.subtract.at(free, in_part[jobs], need[jobs])
    return in_part
