"""Leases of samples to workers: each sample is trained once, however workers come, go and differ in speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sizewright.training.leases.sample_ranges import Range, SampleRanges, reconcile

_ENDLESS = 2**63 - 1
_HELD_AT_MOST = 2
"""Leases of one worker: it asks for the next before the current one is done."""


class Lease(NamedTuple):
    """Samples [start, end) for one worker to train."""

    id: int
    start: int
    end: int
    again: bool = False
    """Some servers have applied these samples already."""


@dataclass
class _Out:
    """A lease that is out: what is left of it is [start, end)."""

    worker: int
    start: int
    end: int
    again: bool


@dataclass
class _Pace:
    """How fast a worker trains, as its reports tell."""

    since_s: float
    samples: int = 0
    """Reported, but not in the rate yet: no time has passed."""
    rate: float | None = None
    """Samples per second."""


class SampleLeases:
    """Which samples are trained, which are out with whom, which are still to go.

    It keeps the ranges that are still to go and the leases that are out, and so stays small however long the run is.
    A lease is the beginning of the lowest range still to go: what was handed back goes out again before new samples.
    First of all go the pieces that some servers have applied and others have not, each in leases of its own.
    It is of whole batches, except where its range ends: about as much as its worker trains in `target_s`, one batch as
    long as its rate is unknown, and ever less near the end, so that all workers finish together: at most half of what
    is to go, shared out evenly, and at most half of the time that all of them need for it.
    """

    def __init__(
        self,
        total: int | None,
        *,
        batch_size: int,
        target_s: float = 2.0,
        most_batches: int = 64,
        trained: Sequence[Range] = (),
        again: Sequence[Range] = (),
    ) -> None:
        """`total` samples are to be trained, None for an endless run; those in `trained` already were, and the pieces
        of `again` were by some servers.

        Raises ValueError for a negative total, a target or size that is not positive, or trained ranges beyond total.
        """
        if (total is not None and total < 0) or not 0 < target_s < math.inf or most_batches < 1:
            raise ValueError(f"no leases of {total} samples, {target_s} s and at most {most_batches} batches")
        self._end = _ENDLESS if total is None else total
        self._target_s, self._most_batches = target_s, most_batches
        self.set_batch_size(batch_size)
        if any(not 0 <= start <= end <= self._end for start, end in trained):
            raise ValueError(f"trained ranges {list(trained)} are not all within {total} samples")
        self._pieces = sorted(again)
        self._free = SampleRanges([*trained, *again]).gaps(0, self._end)
        self._unread = SampleRanges()
        self._out: dict[int, _Out] = {}
        self._paces: dict[int, _Pace] = {}
        self._next_id = 0

    def lease(self, worker: int, now_s: float) -> Lease | None:
        """More samples for a worker; None when all are out or trained, or when it holds two leases already."""
        held = sum(out.worker == worker for out in self._out.values())
        again = bool(self._pieces)
        source = self._pieces or self._free
        if not source or held >= _HELD_AT_MOST:
            return None
        pace = self._paces.setdefault(worker, _Pace(now_s))
        if not held:
            pace.since_s = now_s  # it was idle until now
        start, limit = source[0]
        end = min(start + self._size(worker, pace), limit)
        source[:1] = [(end, limit)] if end < limit else []
        lease = Lease(self._next_id, start, end, again)
        self._next_id += 1
        self._out[lease.id] = _Out(worker, start, end, again)
        return lease

    def report(self, worker: int, lease_id: int, until: int, now_s: float) -> None:
        """The worker has trained its lease up to sample `until`, exclusive.

        Ignored when the lease is no longer that worker's, or nothing is new in it. Raises ValueError when `until` lies
        beyond the lease.
        """
        out = self._out.get(lease_id)
        if out is None or out.worker != worker:
            return
        if until > out.end:
            raise ValueError(f"worker {worker} reports sample {until} of lease {lease_id}, which ends at {out.end}")
        if until <= out.start:
            return
        self._pace(self._paces[worker], until - out.start, now_s)
        out.start = until
        if out.start == out.end:
            del self._out[lease_id]

    def skip(self, start: int, end: int) -> None:
        """There is nothing to train in these samples: no server will ever apply them."""
        self._unread.add(start, end)

    def hand_back(self, worker: int) -> None:
        """What the worker has not trained of its leases is to go again; its rate is kept.

        Only the worker itself may say so, who knows that no server has any of it.
        """
        for out in self._ended(worker):
            if out.again:
                self._pieces = sorted([*self._pieces, (out.start, out.end)])
            else:
                self._free = list(SampleRanges([*self._free, (out.start, out.end)]))

    def release(self, worker: int, applied: Sequence[SampleRanges]) -> int:
        """The worker has gone: what it has not trained goes out again, by what all accounts of the servers say of it.

        What each of them has applied is trained; what only some have is to be trained by the others alone. Returns how
        many samples go out again.
        """
        self._paces.pop(worker, None)
        found = reconcile([(out.start, out.end) for out in self._ended(worker)], applied)
        self._free = list(SampleRanges([*self._free, *found.none]))
        self._pieces = sorted([*self._pieces, *found.some])
        return sum(end - start for start, end in [*found.none, *found.some])

    def set_batch_size(self, batch_size: int) -> None:
        """Samples per batch of leases to come. Raises ValueError below 1."""
        if batch_size < 1:
            raise ValueError(f"a batch of {batch_size} samples")
        self._batch_size = batch_size

    @property
    def finished(self) -> bool:
        """Everything is trained."""
        return not self._free and not self._pieces and not self._out

    @property
    def trained(self) -> int:
        """Samples trained."""
        return self._end - self._to_go() - sum(self.out().values())

    def trained_ranges(self) -> SampleRanges:
        """What is trained."""
        out = ((out.start, out.end) for out in self._out.values())
        return SampleRanges(SampleRanges([*self._free, *self._pieces, *out]).gaps(0, self._end))

    def applied_ranges(self) -> SampleRanges:
        """What is trained, and so is applied by all servers that have not lost it."""
        return self.trained_ranges().minus(self._unread)

    def remaining(self) -> int | None:
        """Samples not trained yet, those that are out included; None in an endless run."""
        return None if self._end == _ENDLESS else self._end - self.trained

    def out(self) -> dict[int, int]:
        """Samples that are out and not trained yet, by worker."""
        samples: dict[int, int] = {}
        for out in self._out.values():
            samples[out.worker] = samples.get(out.worker, 0) + out.end - out.start
        return samples

    def _size(self, worker: int, pace: _Pace) -> int:
        active = {worker, *(out.worker for out in self._out.values())}
        to_go = self._to_go()
        batches = 1.0
        if pace.rate is not None:
            together = sum(self._paces[each].rate or 0.0 for each in active)
            batches = pace.rate * min(self._target_s, to_go / (2 * together)) / self._batch_size
        fair = math.ceil(to_go / (2 * len(active) * self._batch_size))
        return max(1, round(min(batches, self._most_batches, fair))) * self._batch_size

    def _pace(self, pace: _Pace, samples: int, now_s: float) -> None:
        """A moving average in which the last `target_s` weigh 63%: many short reports count as one long one."""
        pace.samples += samples
        elapsed = now_s - pace.since_s
        if elapsed <= 0:
            return
        rate, weight = pace.samples / elapsed, -math.expm1(-elapsed / self._target_s)
        pace.rate = rate if pace.rate is None else pace.rate + weight * (rate - pace.rate)
        pace.since_s, pace.samples = now_s, 0

    def _ended(self, worker: int) -> list[_Out]:
        """The leases of a worker, which are out no more."""
        ended = {number: out for number, out in self._out.items() if out.worker == worker}
        for number in ended:
            del self._out[number]
        return list(ended.values())

    def _to_go(self) -> int:
        return sum(end - start for start, end in [*self._free, *self._pieces])
