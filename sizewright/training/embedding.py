"""Embedding rows of one parameter server: they appear with their ids and carry their optimizer state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.training.hash_index import HashIndex, Keys, Slots
from sizewright.training.optimizers import Floats, UpdateRule

TABLE_SHIFT = 40  # ids stay below 2**40, tables below 2**22


def make_keys(ids: NDArray[np.int64]) -> Keys:
    """Keys (n·tables,) of ids (n, tables): one key space for all tables."""
    tables = np.arange(ids.shape[1], dtype=np.int64) << TABLE_SHIFT
    return (ids + tables).ravel()


# Hashed keys fill partitions unevenly; what is reserved and not used costs nothing.
_SLACK = 1.02


class EmbeddingStore:
    """All tables' rows of one partition, in one array of weights and one of optimizer state.

    Rows that are not touched cost no memory: the arrays are reserved for `expected_rows`
    and the host gives pages on first use. Beyond that they double, and for a moment
    the old and the new array both exist.
    """

    def __init__(self, width: int, rule: UpdateRule, *, expected_rows: int = 0, seed: int = 0) -> None:
        self.width = width
        self._rule = rule
        self._index = HashIndex(expected_rows)
        self._rng = np.random.default_rng(seed)
        capacity = int(expected_rows * _SLACK) + 1024
        self._weights = np.zeros((capacity, width), np.float32)
        self._state = np.zeros((capacity, rule.state_width(width)), np.float32)

    @property
    def rows(self) -> int:
        """Rows that exist."""
        return self._index.size

    @property
    def embedding_bytes(self) -> int:
        """Bytes of existing rows and their optimizer state."""
        return self.rows * (self.width + self._state.shape[1]) * 4

    @property
    def index_bytes(self) -> int:
        """Bytes of the hash index."""
        return self._index.nbytes

    def locate(self, keys: Keys) -> Slots:
        """Row numbers of distinct keys; unseen keys get a new row."""
        slots, new = self._index.find_or_add(keys)
        if new:
            self._make_rows(new)
        return slots

    def read(self, slots: Slots) -> Floats:
        """Weights (n, width) of rows."""
        return self._weights.take(slots, axis=0)

    def update(self, slots: Slots, grads: Floats) -> None:
        """Apply gradients (n, width) to distinct rows."""
        weights, state = self._weights.take(slots, axis=0), self._state.take(slots, axis=0)
        self._rule.update(weights, state, grads)
        self._weights[slots] = weights
        self._state[slots] = state

    def fill(self, keys: Keys, chunk: int = 1 << 18) -> None:
        """Create the rows of distinct keys, so that a measurement starts at a known occupancy."""
        for start in range(0, len(keys), chunk):
            self.locate(keys[start : start + chunk])

    def _make_rows(self, new: int) -> None:
        start, end = self.rows - new, self.rows
        if end > len(self._weights):
            self._grow(max(end, 2 * len(self._weights)))
        bound = 1 / np.sqrt(self.width)
        weights = self._weights[start:end]
        self._rng.random(out=weights, dtype=np.float32)
        weights -= np.float32(0.5)
        weights *= np.float32(2 * bound)
        self._state[start:end] = 0  # touched now, so that memory is at its level before measuring

    def _grow(self, capacity: int) -> None:
        for name in ("_weights", "_state"):
            old = getattr(self, name)
            new = np.zeros((capacity, old.shape[1]), np.float32)
            new[: len(old)] = old
            setattr(self, name, new)
