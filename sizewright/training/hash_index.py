"""An open-addressing hash index from 64-bit keys to row numbers, vectorised over the keys of a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Slots = NDArray[np.int64]

EMPTY = np.int64(-1)
# Knuth's multiplicative constant for 64 bits; the high bits of the product are well mixed.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
MAX_LOAD = 0.5


def hash_keys(keys: Keys) -> NDArray[np.uint64]:
    """Mixed 64-bit hashes of the keys."""
    mixed = keys.view(np.uint64) * _MULTIPLIER
    return mixed ^ (mixed >> np.uint64(29))


def places_for(rows: int) -> int:
    """Places of an index that holds `rows` keys: the power of two that keeps the load at most one half."""
    return max(1024, 1 << int(np.ceil(np.log2(max(rows, 1) / MAX_LOAD))))


class HashIndex:
    """Keys are at least 0; rows are numbered 0, 1, 2, … in the order in which their keys came."""

    def __init__(self, expected_rows: int = 0) -> None:
        self.size = 0
        self._allocate(places_for(expected_rows))

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return int(self._keys.nbytes + self._slots.nbytes)

    def find_or_add(self, keys: Keys) -> tuple[Slots, int]:
        """Row numbers of distinct `keys`, and how many of them are new (they have the greatest numbers)."""
        at = (hash_keys(keys) >> self._shift).astype(np.int64)
        if np.array_equal(self._keys[at], keys):  # the usual case: all known and none displaced
            return self._slots[at].astype(np.int64), 0
        result, new = self._probe(keys, at)
        if len(new):
            if self.size + len(new) > MAX_LOAD * len(self._keys):
                self._grow(self.size + len(new))
            result[new] = np.arange(self.size, self.size + len(new))
            self._slots[self._settle(keys[new])] = result[new]
            self.size += len(new)
        return result, len(new)

    def _allocate(self, places: int) -> None:
        self._keys = np.full(places, EMPTY, np.int64)
        self._slots = np.zeros(places, np.int32)
        self._shift = np.uint64(64 - int(np.log2(places)))

    def _grow(self, rows: int) -> None:
        used = self._keys != EMPTY
        keys, slots = self._keys[used], self._slots[used]
        self._allocate(places_for(rows))
        at = self._settle(keys)
        self._slots[at] = slots

    def _probe(self, keys: Keys, at: Slots) -> tuple[Slots, Slots]:
        """Row numbers of the known keys, searched from their places `at`; and which keys are unknown."""
        result = np.empty(len(keys), np.int64)
        open_ = np.arange(len(keys))
        missing: list[Slots] = []
        while len(open_):
            here = self._keys[at[open_]]
            found = here == keys[open_]
            hit = open_[found]
            result[hit] = self._slots[at[hit]]
            empty = here == EMPTY
            if empty.any():
                missing.append(open_[empty])
            open_ = open_[~(found | empty)]
            at[open_] = (at[open_] + 1) & (len(self._keys) - 1)
        return result, np.sort(np.concatenate(missing)) if missing else open_

    def _settle(self, keys: Keys) -> Slots:
        """Put keys that are not there yet into free places; returns the places."""
        at = (hash_keys(keys) >> self._shift).astype(np.int64)
        open_ = np.arange(len(keys))
        while len(open_):
            free = open_[self._keys[at[open_]] == EMPTY]
            self._keys[at[free]] = keys[free]  # of several keys for one place the last wins
            open_ = open_[self._keys[at[open_]] != keys[open_]]
            at[open_] = (at[open_] + 1) & (len(self._keys) - 1)
        return at
