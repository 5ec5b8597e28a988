"""Leases of samples to workers, however these come, go and differ in speed.

Each sample is trained once; after a PS failure, updates since its snapshot are lost and counted; a sample is repeated
only where a batch covers samples that a part has only in part, and that is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sizewright.training.leases.sample_ranges import Range, SampleRanges, reconcile

_ENDLESS = 2**63 - 1
_MAX_LEASES_PER_WORKER = 2
"""A worker requests the next lease before the current one is done."""


class Lease(NamedTuple):
    """Samples [start, end) for one worker to train."""

    id: int
    start: int
    end: int
    partly_applied: bool = False
    """Some parts of the weights have applied these samples already."""


@dataclass
class _OpenLease:
    """A lease whose samples [start, end) are not trained yet."""

    worker: int
    start: int
    end: int
    partly_applied: bool


@dataclass
class _Pace:
    """The speed of a worker according to its reports."""

    since_s: float
    samples: int = 0
    """Reported samples that are not in the rate yet, because no time has passed."""
    rate: float | None = None
    """Samples per second."""


class SampleLeases:
    """Leases samples to workers, and knows which samples are trained, leased or still to be leased.

    It stores only open leases and ranges of remaining samples, so it stays small in long runs.

    A lease is taken from the start of the lowest remaining range, so returned samples are leased before new ones.
    Ranges that some parts of the weights have applied and others have not come first, in separate leases.

    A lease has whole batches, except at the end of its range. It lasts about `target_s`, or one batch while the
    worker's rate is unknown. Leases shrink near the end, so that all workers finish together: to an even share of at
    most half of the remaining samples, and to at most half of the time that all workers need for them.

    `total` is the number of samples, None for an endless run. Samples in `trained` are trained already, those in
    `partly_applied` were applied to some parts of the weights only. The constructor raises ValueError for a negative
    total, a target or size that is not positive, or trained ranges beyond the total.
    """

    def __init__(
        self,
        total: int | None,
        *,
        batch_size: int,
        target_s: float = 2.0,
        max_batches: int = 64,
        trained: Sequence[Range] = (),
        partly_applied: Sequence[Range] = (),
    ) -> None:
        if total is not None and total < 0:
            raise ValueError(f"total must be at least 0, got {total}")
        if not 0 < target_s < math.inf:
            raise ValueError(f"target_s must be positive and finite, got {target_s}")
        if max_batches < 1:
            raise ValueError(f"max_batches must be at least 1, got {max_batches}")
        self._end = _ENDLESS if total is None else total
        self._target_s = target_s
        self._max_batches = max_batches
        self.set_batch_size(batch_size)
        if any(not 0 <= start <= end <= self._end for start, end in trained):
            raise ValueError(f"trained ranges must lie within {total} samples, got {list(trained)}")
        self._partly_applied = sorted(partly_applied)
        self._free = SampleRanges([*trained, *partly_applied]).gaps(0, self._end)
        self._without_valid_rows = SampleRanges()
        self._open_leases: dict[int, _OpenLease] = {}
        self._paces: dict[int, _Pace] = {}
        self._next_id = 0

    def lease(self, worker: int, now_s: float) -> Lease | None:
        """Lease samples to a worker; return None if none remain, or if it has two leases already."""
        open_leases = sum(lease.worker == worker for lease in self._open_leases.values())
        partly_applied = bool(self._partly_applied)
        source = self._partly_applied or self._free
        if not source or open_leases >= _MAX_LEASES_PER_WORKER:
            return None
        pace = self._paces.setdefault(worker, _Pace(now_s))
        if not open_leases:
            pace.since_s = now_s  # it was idle until now
        start, limit = source[0]
        end = min(start + self._size(worker, pace), limit)
        source[:1] = [(end, limit)] if end < limit else []
        lease = Lease(self._next_id, start, end, partly_applied)
        self._next_id += 1
        self._open_leases[lease.id] = _OpenLease(worker, start, end, partly_applied)
        return lease

    def report(self, worker: int, lease_id: int, until: int, now_s: float) -> None:
        """Record that a worker has trained its lease up to sample `until`, exclusive.

        A report is ignored if the lease is no longer that worker's, or if it is not new. Raise ValueError if `until`
        lies beyond the lease.
        """
        open_lease = self._open_leases.get(lease_id)
        if open_lease is None or open_lease.worker != worker:
            return
        if until > open_lease.end:
            raise ValueError(
                f"worker {worker} reports sample {until} of lease {lease_id}, which ends at {open_lease.end}"
            )
        if until <= open_lease.start:
            return
        self._update_pace(self._paces[worker], until - open_lease.start, now_s)
        open_lease.start = until
        if open_lease.start == open_lease.end:
            del self._open_leases[lease_id]

    def skip(self, start: int, end: int) -> None:
        """Record that the samples [start, end) have no valid rows, so that there is nothing to apply."""
        self._without_valid_rows.add(start, end)

    def hand_back(self, worker: int) -> None:
        """Return the untrained samples of a worker's leases; its rate is kept.

        Only the worker itself may do so, since it knows that no server has applied any of them.
        """
        for lease in self._close_leases(worker):
            if lease.partly_applied:
                self._partly_applied = sorted([*self._partly_applied, (lease.start, lease.end)])
            else:
                self._free = list(SampleRanges([*self._free, (lease.start, lease.end)]))

    def release(self, worker: int, applied: Sequence[SampleRanges]) -> int:
        """Return the untrained samples of a worker that has left or died, and how many they are.

        `applied` has the settled samples of each part of the weights. Samples that all parts have settled are trained.
        Samples that only some have settled will be applied to the others alone.
        """
        self._paces.pop(worker, None)
        reconciled = reconcile([(lease.start, lease.end) for lease in self._close_leases(worker)], applied)
        self._free = list(SampleRanges([*self._free, *reconciled.none]))
        self._partly_applied = sorted([*self._partly_applied, *reconciled.some])
        return sum(end - start for start, end in [*reconciled.none, *reconciled.some])

    def set_batch_size(self, batch_size: int) -> None:
        """Set the samples per batch of future leases. Raise ValueError below 1."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self._batch_size = batch_size

    @property
    def finished(self) -> bool:
        """Return whether all samples are trained."""
        return not self._free and not self._partly_applied and not self._open_leases

    @property
    def trained(self) -> int:
        """The number of trained samples."""
        return self._end - self._unleased() - sum(self.leased().values())

    def trained_ranges(self) -> SampleRanges:
        """Return the trained samples."""
        leased = ((lease.start, lease.end) for lease in self._open_leases.values())
        return SampleRanges(SampleRanges([*self._free, *self._partly_applied, *leased]).gaps(0, self._end))

    def trained_valid_ranges(self) -> SampleRanges:
        """Return the trained samples that have valid rows: all parts of the weights have applied or lost them."""
        return self.trained_ranges().minus(self._without_valid_rows)

    def remaining(self) -> int | None:
        """Return the number of untrained samples, including leased ones; None in an endless run."""
        return None if self._end == _ENDLESS else self._end - self.trained

    def leased(self) -> dict[int, int]:
        """Return the number of leased and untrained samples by worker."""
        samples: dict[int, int] = {}
        for lease in self._open_leases.values():
            samples[lease.worker] = samples.get(lease.worker, 0) + lease.end - lease.start
        return samples

    def _size(self, worker: int, pace: _Pace) -> int:
        active = {worker, *(lease.worker for lease in self._open_leases.values())}
        unleased = self._unleased()
        batches = 1.0
        if pace.rate is not None:
            total_rate = sum(self._paces[each].rate or 0.0 for each in active)
            batches = pace.rate * min(self._target_s, unleased / (2 * total_rate)) / self._batch_size
        fair_share = math.ceil(unleased / (2 * len(active) * self._batch_size))
        return max(1, round(min(batches, self._max_batches, fair_share))) * self._batch_size

    def _update_pace(self, pace: _Pace, samples: int, now_s: float) -> None:
        """Update a moving average in which the last `target_s` weigh 63 %, regardless of the number of reports."""
        pace.samples += samples
        elapsed = now_s - pace.since_s
        if elapsed <= 0:
            return
        rate, weight = pace.samples / elapsed, -math.expm1(-elapsed / self._target_s)
        pace.rate = rate if pace.rate is None else pace.rate + weight * (rate - pace.rate)
        pace.since_s, pace.samples = now_s, 0

    def _close_leases(self, worker: int) -> list[_OpenLease]:
        """Remove the open leases of a worker, and return them."""
        closed = {number: lease for number, lease in self._open_leases.items() if lease.worker == worker}
        for number in closed:
            del self._open_leases[number]
        return list(closed.values())

    def _unleased(self) -> int:
        return sum(end - start for start, end in [*self._free, *self._partly_applied])
