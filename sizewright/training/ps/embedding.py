"""Embedding rows of one parameter server: they appear with their ids and carry their optimizer state.

Tables whose rows are equally wide share a store, so a server has as many stores as its job has widths of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.ps.hash_index import HashIndex, Keys, Slots
from sizewright.training.ps.optimizers import Floats, UpdateRule
from sizewright.training.ps.row_arrays import DeviceRows, HostRows

TABLE_SHIFT = 40  # ids stay below 2**40, tables below 2**22
# Hashed keys fill partitions unevenly; memory that is reserved and not used costs nothing.
_SLACK = 1.02
# Readers of the rows, each with one mark per row. Of the two marks for snapshots, one is for rows that have changed
# since the last snapshot, the other for rows that the current snapshot still has to copy.
MOVE = 1
_FIRST = 0
_SECOND = 2
Mask = NDArray[np.bool_]


def make_keys(ids: NDArray[np.int64], tables: NDArray[np.int64] | None = None) -> Keys:
    """Return keys (n·columns,) of ids (n, columns): one key space for all tables.

    `tables` (columns,) are the tables of the columns, by default one table each.
    """
    tables = np.arange(ids.shape[1], dtype=np.int64) if tables is None else tables
    return (ids + (tables << TABLE_SHIFT)).ravel()


class EmbeddingRows(NamedTuple):
    """Copied rows of one width: `keys` (n,), `weights` (n, width), optimizer `state` (n, state width)."""

    keys: Keys
    weights: Floats
    state: Floats

    def select(self, rows: Mask | Slots) -> EmbeddingRows:
        """Return some of the rows."""
        return EmbeddingRows(self.keys[rows], self.weights[rows], self.state[rows])


class EmbeddingStore:
    """Holds the rows of all tables of one width in one array of weights and one of optimizer state.

    Rows that are not touched cost no memory: the arrays are reserved for `expected_rows`, and the host gives pages on
    first use. Beyond that they double, and for a moment the old and the new array both exist. New rows are drawn
    within ±1/√width times `init_scale`.

    Each row has marks that tell whether a snapshot or a migration has read its current value. While a snapshot is
    copied, the values from its beginning are preserved for it (copy on write).
    """

    def __init__(
        self,
        width: int,
        rule: UpdateRule,
        *,
        expected_rows: int = 0,
        seed: int = 0,
        init_scale: float = 1.0,
        device: str = "cpu",
    ) -> None:
        self.width = width
        self.state_width = rule.state_width(width)
        self._index = HashIndex(expected_rows)
        self._rng = np.random.default_rng(seed)
        self._bound = np.float32(init_scale / np.sqrt(width))
        capacity = int(expected_rows * _SLACK) + 1024
        self._arrays = HostRows(width, rule, capacity) if device == "cpu" else DeviceRows(width, rule, capacity, device)
        self._unread = np.zeros(capacity, np.uint8)
        self._changed_for, self._copied_for = _FIRST, _SECOND
        self._preserved: list[EmbeddingRows] | None = None
        """While a snapshot is copied: the former values of rows that have changed since it began."""

    @property
    def rows(self) -> int:
        """The number of existing rows."""
        return self._index.size

    @property
    def embedding_bytes(self) -> int:
        """Bytes of existing rows and their optimizer state."""
        return self.rows * (self.width + self.state_width) * 4

    @property
    def index_bytes(self) -> int:
        """Bytes of the hash index, and of one byte of marks per row."""
        return self._index.nbytes + self._index.top

    @property
    def device_bytes(self) -> int:
        """Bytes of GPU memory that the rows take."""
        return self._arrays.device_bytes

    def locate(self, keys: Keys) -> Slots:
        """Return the row numbers of distinct keys; unknown keys get a new row."""
        slots, new = self._index.find_or_add(keys)
        if len(new):
            self._make_rows(new)
        return slots

    def read(self, slots: Slots) -> Floats:
        """Return the weights (n, width) of rows."""
        return self._arrays.read(slots)

    def update(self, slots: Slots, grads: Floats) -> None:
        """Apply gradients (n, width) to distinct rows."""
        self._preserve(slots)
        self._arrays.update(slots, grads)
        self._unread[slots] = self._marks

    def fill(self, keys: Keys, chunk: int = 1 << 18) -> None:
        """Create the rows of distinct keys, so that a measurement starts at a known occupancy."""
        for start in range(0, len(keys), chunk):
            self.locate(keys[start : start + chunk])

    def insert(self, rows: EmbeddingRows) -> None:
        """Write rows, replacing existing values."""
        slots, new = self._index.find_or_add(rows.keys)
        if len(new):
            self._reserve()
        self._preserve(slots)
        self._arrays.put(slots, rows.weights, rows.state)
        self._unread[slots] = self._marks

    def slots(self, start: int, end: int) -> tuple[Slots, Keys]:
        """Return the existing row numbers in [start, end), and their keys."""
        keys = self._index.keys_of(slice(start, min(end, self._index.top)))
        existing = np.flatnonzero(keys >= 0)
        return existing + start, keys[existing]

    @property
    def top(self) -> int:
        """The greatest row number that was ever used, plus 1."""
        return self._index.top

    def unread(self, reader: int, start: int, end: int) -> Slots:
        """Return the row numbers in [start, end) whose current value the reader has not taken."""
        return np.flatnonzero(self._unread[start:end] & np.uint8(1 << reader)) + start

    def take(
        self, slots: Slots, reader: int, selects: Callable[[Keys], Mask] | None = None, *, still_unread: bool = False
    ) -> EmbeddingRows:
        """Return copies of those rows that the reader has not taken yet and `selects` accepts, and mark all as read.

        With `still_unread`, rows that `selects` rejects stay unread, because the reader may need them later.
        """
        slots = slots[(self._unread[slots] & np.uint8(1 << reader)) > 0]
        keys = self._index.keys_of(slots)
        selected = keys >= 0
        if selects is not None:
            selected &= selects(keys)
        later = np.uint8(1 << (self._changed_for if reader == self._copied_for else reader))
        self._unread[slots] &= ~np.uint8(1 << reader)
        if not selected.all():
            if still_unread:
                self._unread[slots[~selected]] |= later
            slots, keys = slots[selected], keys[selected]
        return EmbeddingRows(keys, *self._arrays.take(slots))

    def rows_at(self, slots: Slots) -> EmbeddingRows:
        """Return copies of existing rows."""
        return EmbeddingRows(self._index.keys_of(slots), *self._arrays.take(slots))

    def keys_of(self, slots: Slots) -> Keys:
        """Return the keys of existing rows."""
        return self._index.keys_of(slots)

    def mark_all_for_migration(self) -> None:
        """Mark all rows as unread by a migration."""
        self._unread[: self.top] |= np.uint8(1 << MOVE)

    def begin_snapshot(self, *, all_rows: bool) -> int:
        """Begin a snapshot of the current values, and return its reader.

        The reader takes the rows that have changed since the last snapshot, or `all_rows`.
        """
        if all_rows:
            self._unread[: self.top] |= np.uint8(1 << self._changed_for)
        self._changed_for, self._copied_for = self._copied_for, self._changed_for
        self._preserved = []
        return self._copied_for

    def take_preserved(self) -> list[EmbeddingRows]:
        """Return the former values of rows that have changed since the snapshot began, each once."""
        preserved = self._preserved or []
        if self._preserved is not None:
            self._preserved = []
        return preserved

    def end_snapshot(self) -> None:
        """End the snapshot. If it was cancelled, the next one must take all rows."""
        self._preserved = None

    def remove(self, keys: Keys) -> None:
        """Remove distinct known keys."""
        if self._preserved is not None:
            self._preserve(self._index.find(keys))
        self._unread[self._index.remove(keys)] = 0

    @property
    def _marks(self) -> np.uint8:
        """The marks of a row that has just changed: unread by all but the snapshot that is being copied."""
        return np.uint8(0xFF & ~(1 << self._copied_for))

    def _preserve(self, slots: Slots) -> None:
        """Save the values of rows that are about to change and that the current snapshot has not copied yet."""
        if self._preserved is not None:
            needed = slots[(self._unread[slots] & np.uint8(1 << self._copied_for)) > 0]
            if len(needed):
                self._preserved.append(self.rows_at(needed))

    def _make_rows(self, new: Slots) -> None:
        self._reserve()
        weights = self._rng.random((len(new), self.width), dtype=np.float32)
        weights -= np.float32(0.5)
        weights *= np.float32(2) * self._bound
        # The state is written too, so that memory has reached its final level before a measurement.
        self._arrays.put(new, weights, np.zeros((len(new), self.state_width), np.float32))
        self._unread[new] = self._marks

    def _reserve(self) -> None:
        if self._index.top <= self._arrays.capacity:
            return
        capacity = max(self._index.top, 2 * self._arrays.capacity)
        self._arrays.grow(capacity)
        self._unread = np.concatenate([self._unread, np.zeros(capacity - len(self._unread), np.uint8)])


def insert_rows(stores: Sequence[EmbeddingStore], rows: EmbeddingRows) -> None:
    """Write rows into the store of their width. Raise ValueError if there is none."""
    width = rows.weights.shape[1]
    for store in stores:
        if store.width == width:
            store.insert(rows)
            return
    raise ValueError(f"no table has rows of {width} floats")
