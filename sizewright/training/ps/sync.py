"""Synchronisation of pushes: asynchronous, with bounded staleness, or in synchronous rounds.

All methods are called under the server's lock, to which the condition `changed` belongs.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sizewright.training.leases.sample_ranges import Range
from sizewright.training.ps.hash_index import Slots
from sizewright.training.ps.optimizers import Floats


class RowPush(NamedTuple):
    """Gradients (n, width) of the rows `slots` (n,) of one store."""

    slots: Slots
    grads: Floats


class PendingPush(NamedTuple):
    """One worker's gradients: those of rows of each store, or of none, and those of the server's dense weights.

    `samples` are the samples of the rows' gradients, `dense_samples` those of the dense gradients. `dense_runs` are the
    parts of the dense weights that lack these samples; None stands for all.
    """

    rows: Sequence[RowPush]
    dense_grads: Floats
    samples: Sequence[Range] = ()
    dense_samples: Sequence[Range] = ()
    dense_runs: list[slice] | None = None


Apply = Callable[[Sequence[PendingPush]], None]
"""Applies the mean of pushes, and records their samples as applied."""


class UpdateSync(ABC):
    """Decides when pushes are applied and how long workers wait for each other.

    `members` has the numbers of the workers that take part.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self.members: set[int] = set()
        self._changed = changed
        self._waited = threading.local()
        self._closed = False

    @property
    def waited_s(self) -> float:
        """The total seconds that the calling thread has waited for other workers."""
        return getattr(self._waited, "seconds", 0.0)

    @abstractmethod
    def join(self, worker: int) -> None:
        """Make a worker a member at the next batch boundary."""

    def await_membership(self, worker: int) -> None:  # noqa: B027
        """Wait until a worker that has joined is a member or was dropped."""

    @abstractmethod
    def push(self, worker: int, tag: int, push: PendingPush, apply: Apply) -> bool:
        """Take a member's push, the `tag`-th of its steps; return False if its round was broken off."""

    @abstractmethod
    def push_outside_round(self, push: PendingPush, apply: Apply) -> None:
        """Apply a push for which no round waits; `ParameterServer` says which these are."""

    def drop(self, worker: int) -> None:
        """Remove a worker that leaves or has died, so that nobody waits for it."""
        self.members.discard(worker)
        self._changed.notify_all()

    def break_off(self) -> None:
        """Let nobody wait for others; pushes of an open synchronous round are refused."""
        self._changed.notify_all()

    def close(self) -> None:
        """Wake all waiting workers; their waits raise ConnectionError."""
        self._closed = True
        self._changed.notify_all()

    def _wait_for(self, ready: Callable[[], bool]) -> None:
        start = time.perf_counter()
        self._changed.wait_for(lambda: self._closed or ready())
        self._waited.seconds = self.waited_s + time.perf_counter() - start
        if self._closed:
            raise ConnectionError("the parameter server has closed")


class AsyncUpdates(UpdateSync):
    """Asynchronous updates: every push is applied at once.

    With `staleness`, a worker that is more than that many steps ahead of the slowest member waits (stale synchronous
    parallel, Ho et al. 2013). Steps are counted by the tags of pushes. A change of the routing ends all waits, because
    other workers may need the pending replies. Counting then begins anew on all servers: on one that counts from an
    earlier change a worker may be ahead of another that is ahead of it elsewhere, and they would wait for each other.
    """

    def __init__(self, changed: threading.Condition, staleness: int | None = None) -> None:
        super().__init__(changed)
        self._staleness = staleness
        self._clocks: dict[int, int] = {}
        self._offsets: dict[int, int] = {}  # clock less tag, from a member's first push on
        self._changes = 0

    def join(self, worker: int) -> None:  # noqa: D102
        self.members.add(worker)
        self._clocks[worker] = min(self._clocks.values(), default=0)

    def push(self, worker: int, tag: int, push: PendingPush, apply: Apply) -> bool:  # noqa: D102
        apply([push])
        if self._staleness is not None:
            offset = self._offsets.setdefault(worker, self._clocks.get(worker, 0) + 1 - tag)
            self._clocks[worker] = tag + offset
            self._changed.notify_all()
            changes, bound = self._changes, self._staleness
            self._wait_for(lambda: self._changes != changes or self._steps_ahead(worker) <= bound)
        return True

    def push_outside_round(self, push: PendingPush, apply: Apply) -> None:  # noqa: D102
        apply([push])

    def drop(self, worker: int) -> None:  # noqa: D102
        self._clocks.pop(worker, None)
        self._offsets.pop(worker, None)
        super().drop(worker)

    def break_off(self) -> None:  # noqa: D102
        self._changes += 1
        self._clocks, self._offsets = dict.fromkeys(self.members, 0), {}
        super().break_off()

    def _steps_ahead(self, worker: int) -> int:
        return self._clocks.get(worker, 0) - min(self._clocks.values(), default=0)


class SyncRounds(UpdateSync):
    """Synchronous updates: the mean of one push of every member is applied as one update."""

    def __init__(self, changed: threading.Condition) -> None:
        super().__init__(changed)
        self._pushes: dict[int, PendingPush] = {}
        self._number = 0
        self._broken: set[int] = set()
        self._joining: set[int] = set()
        self._apply: Apply | None = None

    def join(self, worker: int) -> None:  # noqa: D102
        # A round that has begun goes on without it. Its first pull does not wait for that: the round may need a push
        # that is sent again only after another server's round, which in turn needs the first push of this worker.
        (self._joining if self._pushes else self.members).add(worker)

    def await_membership(self, worker: int) -> None:  # noqa: D102
        self._wait_for(lambda: worker not in self._joining)

    def push(self, worker: int, tag: int, push: PendingPush, apply: Apply) -> bool:  # noqa: D102
        number = self._number
        self._pushes[worker], self._apply = push, apply
        self._finish_round()
        self._wait_for(lambda: self._number != number or worker not in self.members)
        return self._number != number and number not in self._broken

    def push_outside_round(self, push: PendingPush, apply: Apply) -> None:  # noqa: D102
        share = np.float32(max(1, len(self.members)))
        rows = [RowPush(each.slots, each.grads / share) for each in push.rows]
        apply([push._replace(rows=rows, dense_grads=push.dense_grads / share)])

    def drop(self, worker: int) -> None:  # noqa: D102
        self._pushes.pop(worker, None)
        self.members.discard(worker)
        self._joining.discard(worker)
        self._finish_round()
        if not self._pushes:
            self._admit()
        self._changed.notify_all()

    def break_off(self) -> None:  # noqa: D102
        if self._pushes:
            self._broken.add(self._number)
            self._next_round()

    def close(self) -> None:  # noqa: D102
        self._pushes, self._apply = {}, None
        super().close()

    def _finish_round(self) -> None:
        if self._pushes and self.members <= self._pushes.keys():
            assert self._apply is not None
            self._apply(list(self._pushes.values()))
            self._next_round()

    def _next_round(self) -> None:
        self._pushes, self._apply = {}, None
        self._number += 1
        self._admit()
        self._changed.notify_all()

    def _admit(self) -> None:
        self.members |= self._joining
        self._joining.clear()


def mean_push(pushes: Sequence[PendingPush]) -> PendingPush:
    """Return the mean of pushes; a row that a push does not touch has a gradient of 0 in it."""
    if len(pushes) == 1:
        return pushes[0]
    stores = max(len(push.rows) for push in pushes)
    rows = [_mean_rows([push.rows[i] for push in pushes if push.rows], len(pushes)) for i in range(stores)]
    dense: Floats = np.zeros(max(push.dense_grads.size for push in pushes), np.float32)
    for push in pushes:
        for run in [slice(0, push.dense_grads.size)] if push.dense_runs is None else push.dense_runs:
            dense[run] += push.dense_grads[run]
    return PendingPush(rows, dense / np.float32(len(pushes)))


def _mean_rows(pushes: Sequence[RowPush], count: int) -> RowPush:
    """Return the sum of the pushes to one store, divided by `count`."""
    slots, inverse = np.unique(np.concatenate([push.slots for push in pushes]), return_inverse=True)
    grads: Floats = np.zeros((len(slots), pushes[0].grads.shape[1]), np.float32)
    boundaries = np.cumsum([len(push.slots) for push in pushes])[:-1]
    for push, positions in zip(pushes, np.split(inverse, boundaries), strict=True):
        grads[positions] += push.grads
    return RowPush(slots.astype(np.int64), grads / np.float32(count))
