"""An open-addressing hash index from 64-bit keys to row numbers, vectorised over the keys of a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Slots = NDArray[np.int64]

# Places hold row numbers; the keys stand beside the rows. These two mark places without a row, and index the last
# entries of the keys, which no key equals.
_EMPTY, _GONE = -1, -2
_NO_KEY = np.int64(-1)
_SENTINELS = 2
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
    """Keys are at least 0; rows are numbered 0, 1, 2, … in the order in which their keys came.

    A removed key's number is given to the next new one.
    """

    def __init__(self, expected_rows: int = 0) -> None:
        self.size = 0
        self.top = 0
        self._free: Slots = np.empty(0, np.int64)
        self._gone = 0  # places of removed keys: probes pass over them
        self._keys = np.full(max(expected_rows, 1024) + _SENTINELS, _NO_KEY, np.int64)
        self._allocate(places_for(expected_rows))

    @property
    def nbytes(self) -> int:
        """Bytes of the index that are in use: its places, and one key a row."""
        return int(self._places.nbytes) + self.top * 8

    def keys_of(self, slots: Slots | slice) -> Keys:
        """The keys of rows; -1 for a number that is free."""
        return self._keys[slots]

    def find_or_add(self, keys: Keys) -> tuple[Slots, Slots]:
        """Row numbers of distinct `keys`, and those of them that are new."""
        at = self._first_places(keys)
        slots = self._places[at]
        if np.array_equal(self._keys[slots], keys):  # the usual case: all known and none displaced
            return slots.astype(np.int64), self._free[:0]
        result, new = self._probe(keys, at)
        if not len(new):
            return result, self._free[:0]
        if self.size + self._gone + len(new) > MAX_LOAD * len(self._places):
            self._rebuild(self.size + len(new))
        numbers = self._take(len(new))
        self._keys[numbers] = keys[new]
        self._settle(keys[new], numbers)
        result[new] = numbers
        self.size += len(new)
        return result, numbers

    def find(self, keys: Keys) -> Slots:
        """Row numbers of distinct keys, -1 for those that are unknown."""
        return self._probe(keys, self._first_places(keys))[0]

    def remove(self, keys: Keys) -> Slots:
        """Forget distinct keys that are known; returns the row numbers that are now free."""
        slots = self.find(keys)
        places = self._first_places(keys)
        open_ = np.arange(len(keys))
        while len(open_):
            open_ = open_[self._places[places[open_]] != slots[open_]]
            places[open_] = (places[open_] + 1) & (len(self._places) - 1)
        self._places[places] = _GONE
        self._gone += len(keys)
        self._keys[slots] = _NO_KEY
        self._free = np.concatenate([self._free, slots])
        self.size -= len(keys)
        return slots

    def _first_places(self, keys: Keys) -> Slots:
        return (hash_keys(keys) >> self._shift).astype(np.int64)

    def _take(self, count: int) -> Slots:
        """Free row numbers: those of removed keys first."""
        reused = min(count, len(self._free))
        numbers = np.concatenate([self._free[:reused], np.arange(self.top, self.top + count - reused)])
        self._free = self._free[reused:]
        self.top += count - reused
        if self.top > len(self._keys) - _SENTINELS:
            grown = np.full(2 * self.top + _SENTINELS, _NO_KEY, np.int64)
            grown[: len(self._keys) - _SENTINELS] = self._keys[:-_SENTINELS]
            self._keys = grown
        return numbers

    def _allocate(self, places: int) -> None:
        self._places = np.full(places, _EMPTY, np.int32)
        self._shift = np.uint64(64 - int(np.log2(places)))

    def _rebuild(self, rows: int) -> None:
        live = self._places[self._places >= 0].astype(np.int64)
        self._allocate(max(places_for(rows), len(self._places) if not self._gone else 0))
        self._gone = 0
        self._settle(self._keys[live], live)

    def _probe(self, keys: Keys, at: Slots) -> tuple[Slots, Slots]:
        """Row numbers of the known keys, searched from their places `at`; and which keys are unknown."""
        result = np.full(len(keys), _EMPTY, np.int64)
        open_ = np.arange(len(keys))
        missing: list[Slots] = []
        while len(open_):
            here = self._places[at[open_]]
            found = self._keys[here] == keys[open_]
            result[open_[found]] = here[found]
            empty = here == _EMPTY
            if empty.any():
                missing.append(open_[empty])
            open_ = open_[~(found | empty)]
            at[open_] = (at[open_] + 1) & (len(self._places) - 1)
        return result, np.sort(np.concatenate(missing)) if missing else open_

    def _settle(self, keys: Keys, numbers: Slots) -> None:
        """Put the row numbers of keys that are not there yet into empty places."""
        at = self._first_places(keys)
        open_ = np.arange(len(keys))
        while len(open_):
            free = open_[self._places[at[open_]] == _EMPTY]
            self._places[at[free]] = numbers[free]  # of several keys for one place the last wins
            open_ = open_[self._places[at[open_]] != numbers[open_]]
            at[open_] = (at[open_] + 1) & (len(self._places) - 1)
