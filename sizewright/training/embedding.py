"""Embedding rows of one parameter server: they appear with their ids and carry their optimizer state."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.hash_index import HashIndex, Keys, Slots
from sizewright.training.optimizers import Floats, UpdateRule
from sizewright.training.row_arrays import DeviceRows, HostRows

TABLE_SHIFT = 40  # ids stay below 2**40, tables below 2**22
# Hashed keys fill partitions unevenly; what is reserved and not used costs nothing.
_SLACK = 1.02
# Readers of the rows. What has changed since the last snapshot is marked for one of the two, what is being copied for
# the present one for the other.
MOVE, _FIRST, _SECOND = 1, 0, 2
Mask = NDArray[np.bool_]


def make_keys(ids: NDArray[np.int64]) -> Keys:
    """Keys (n·tables,) of ids (n, tables): one key space for all tables."""
    tables = np.arange(ids.shape[1], dtype=np.int64) << TABLE_SHIFT
    return (ids + tables).ravel()


class Rows(NamedTuple):
    """Rows on their way: `keys` (n,), `weights` (n, width), optimizer `state` (n, state width)."""

    keys: Keys
    weights: Floats
    state: Floats


class EmbeddingStore:
    """All tables' rows of one partition, in one array of weights and one of optimizer state.

    Rows that are not touched cost no memory: the arrays are reserved for `expected_rows`
    and the host gives pages on first use. Beyond that they double, and for a moment
    the old and the new array both exist. New rows are drawn within ±1/√width times `spread`.

    Each row remembers whether a snapshot and a move have seen its present value. While a snapshot is copied, rows keep
    the value for it that they had when it began (copy on write).
    """

    def __init__(
        self,
        width: int,
        rule: UpdateRule,
        *,
        expected_rows: int = 0,
        seed: int = 0,
        spread: float = 1.0,
        device: str = "cpu",
    ) -> None:
        self.width = width
        self.state_width = rule.state_width(width)
        self._index = HashIndex(expected_rows)
        self._rng = np.random.default_rng(seed)
        self._bound = np.float32(spread / np.sqrt(width))
        capacity = int(expected_rows * _SLACK) + 1024
        self._arrays = HostRows(width, rule, capacity) if device == "cpu" else DeviceRows(width, rule, capacity, device)
        self._unread = np.zeros(capacity, np.uint8)
        self._changed_for, self._copied_for = _FIRST, _SECOND
        self._kept: list[Rows] | None = None
        """While a snapshot is copied: rows as they were when it began, which have changed since."""

    @property
    def rows(self) -> int:
        """Rows that exist."""
        return self._index.size

    @property
    def embedding_bytes(self) -> int:
        """Bytes of existing rows and their optimizer state."""
        return self.rows * (self.width + self.state_width) * 4

    @property
    def index_bytes(self) -> int:
        """Bytes of the hash index, and of one mark a row."""
        return self._index.nbytes + self._index.top

    @property
    def device_bytes(self) -> int:
        """Bytes that the rows take in a GPU's memory."""
        return self._arrays.device_bytes

    def locate(self, keys: Keys) -> Slots:
        """Row numbers of distinct keys; unseen keys get a new row."""
        slots, new = self._index.find_or_add(keys)
        if len(new):
            self._make_rows(new)
        return slots

    def read(self, slots: Slots) -> Floats:
        """Weights (n, width) of rows."""
        return self._arrays.read(slots)

    def update(self, slots: Slots, grads: Floats) -> None:
        """Apply gradients (n, width) to distinct rows."""
        self._keep(slots)
        self._arrays.update(slots, grads)
        self._unread[slots] = self._marks

    def fill(self, keys: Keys, chunk: int = 1 << 18) -> None:
        """Create the rows of distinct keys, so that a measurement starts at a known occupancy."""
        for start in range(0, len(keys), chunk):
            self.locate(keys[start : start + chunk])

    def insert(self, rows: Rows) -> None:
        """Put rows as they are in place of what is there."""
        slots, new = self._index.find_or_add(rows.keys)
        if len(new):
            self._reserve()
        self._keep(slots)
        self._arrays.put(slots, rows.weights, rows.state)
        self._unread[slots] = self._marks

    def slots(self, start: int, end: int) -> tuple[Slots, Keys]:
        """Existing rows among the numbers [start, end), and their keys; `end` beyond the last is cut."""
        keys = self._index.keys_of(slice(start, min(end, self._index.top)))
        there = np.flatnonzero(keys >= 0)
        return there + start, keys[there]

    @property
    def top(self) -> int:
        """The number after the greatest row number in use."""
        return self._index.top

    def unread(self, reader: int, start: int, end: int) -> Slots:
        """Rows among the numbers [start, end) whose value the reader has not taken."""
        return np.flatnonzero(self._unread[start:end] & np.uint8(1 << reader)) + start

    def take(
        self, slots: Slots, reader: int, wanted: Callable[[Keys], Mask] | None = None, *, still_unread: bool = False
    ) -> Rows:
        """Copies of rows for a reader, who has then seen them; without those that it has, or that are not wanted.

        With `still_unread` rows that are not wanted now may be wanted later.
        """
        slots = slots[(self._unread[slots] & np.uint8(1 << reader)) > 0]
        keys = self._index.keys_of(slots)
        kept = keys >= 0
        if wanted is not None:
            kept &= wanted(keys)
        later = np.uint8(1 << (self._changed_for if reader == self._copied_for else reader))
        self._unread[slots] &= ~np.uint8(1 << reader)
        if not kept.all():
            if still_unread:
                self._unread[slots[~kept]] |= later
            slots, keys = slots[kept], keys[kept]
        return Rows(keys, *self._arrays.take(slots))

    def rows_at(self, slots: Slots) -> Rows:
        """Copies of existing rows."""
        return Rows(self._index.keys_of(slots), *self._arrays.take(slots))

    def keys_of(self, slots: Slots) -> Keys:
        """Keys of existing rows."""
        return self._index.keys_of(slots)

    def forget_move(self) -> None:
        """Take all rows as not seen by a move."""
        self._unread[: self.top] |= np.uint8(1 << MOVE)

    def begin_snapshot(self, *, all_rows: bool) -> int:
        """Begin a snapshot of this moment; returns the reader that takes what has changed since the last one, or
        `all_rows`."""
        if all_rows:
            self._unread[: self.top] |= np.uint8(1 << self._changed_for)
        self._changed_for, self._copied_for = self._copied_for, self._changed_for
        self._kept = []
        return self._copied_for

    def kept_rows(self) -> list[Rows]:
        """Return what the present snapshot needs of rows that have changed since it began; each is given once."""
        kept, self._kept = self._kept or [], None if self._kept is None else []
        return kept

    def end_snapshot(self) -> None:
        """The snapshot is done, or called off; then the next must be of all rows."""
        self._kept = None

    def remove(self, keys: Keys) -> None:
        """Forget distinct keys that are known."""
        if self._kept is not None:
            self._keep(self._index.find(keys))
        self._unread[self._index.remove(keys)] = 0

    @property
    def _marks(self) -> np.uint8:
        """What is set for a row that has changed."""
        return np.uint8(0xFF & ~(1 << self._copied_for))

    def _keep(self, slots: Slots) -> None:
        """Rows that are about to change, as the snapshot under way needs them."""
        if self._kept is not None:
            needed = slots[(self._unread[slots] & np.uint8(1 << self._copied_for)) > 0]
            if len(needed):
                self._kept.append(self.rows_at(needed))

    def _make_rows(self, new: Slots) -> None:
        self._reserve()
        weights = self._rng.random((len(new), self.width), dtype=np.float32)
        weights -= np.float32(0.5)
        weights *= np.float32(2) * self._bound
        # The state is written too, so that memory is at its level before measuring.
        self._arrays.put(new, weights, np.zeros((len(new), self.state_width), np.float32))
        self._unread[new] = self._marks

    def _reserve(self) -> None:
        if self._index.top <= self._arrays.capacity:
            return
        capacity = max(self._index.top, 2 * self._arrays.capacity)
        self._arrays.grow(capacity)
        self._unread = np.concatenate([self._unread, np.zeros(capacity - len(self._unread), np.uint8)])
