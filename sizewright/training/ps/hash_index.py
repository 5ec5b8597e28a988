"""An open-addressing hash index from 64-bit keys to row numbers, vectorised over the keys of a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Slots = NDArray[np.int64]

# Places hold row numbers; a parallel array holds the keys by row. These two values mark places without a row, and index
# the last entries of the array of keys, which equal no key.
_EMPTY, _REMOVED = -1, -2
_NO_KEY = np.int64(-1)
_SENTINELS = 2
# Knuth's multiplicative constant for 64 bits; the high bits of the product are well mixed.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
MAX_LOAD = 0.5


def hash_keys(keys: Keys) -> NDArray[np.uint64]:
    """Return mixed 64-bit hashes of the keys."""
    mixed = keys.view(np.uint64) * _MULTIPLIER
    return mixed ^ (mixed >> np.uint64(29))


def places_for(rows: int) -> int:
    """Return the size of an index for `rows` keys: the power of two that keeps its load at most one half."""
    return max(1024, 1 << int(np.ceil(np.log2(max(rows, 1) / MAX_LOAD))))


class HashIndex:
    """Maps keys of at least 0 to row numbers 0, 1, 2, … in the order in which the keys were added.

    The row number of a removed key is reused for the next new key.
    """

    def __init__(self, expected_rows: int = 0) -> None:
        self.size = 0
        self.top = 0
        self._free: Slots = np.empty(0, np.int64)
        self._removed = 0  # places of removed keys: probes pass over them
        self._keys = np.full(max(expected_rows, 1024) + _SENTINELS, _NO_KEY, np.int64)
        self._allocate(places_for(expected_rows))

    @property
    def nbytes(self) -> int:
        """Bytes of the index in use: its places, and one key per row."""
        return int(self._places.nbytes) + self.top * 8

    def keys_of(self, slots: Slots | slice) -> Keys:
        """Return the keys of rows; -1 for a free row number."""
        return self._keys[slots]

    def find_or_add(self, keys: Keys) -> tuple[Slots, Slots]:
        """Return the row numbers of distinct `keys`, and those of them that are new."""
        places = self._first_places(keys)
        slots = self._places[places]
        if np.array_equal(self._keys[slots], keys):  # the common case: all known and none displaced
            return slots.astype(np.int64), self._free[:0]
        result, new = self._probe(keys, places)
        if not len(new):
            return result, self._free[:0]
        if self.size + self._removed + len(new) > MAX_LOAD * len(self._places):
            self._rebuild(self.size + len(new))
        numbers = self._take_row_numbers(len(new))
        self._keys[numbers] = keys[new]
        self._insert(keys[new], numbers)
        result[new] = numbers
        self.size += len(new)
        return result, numbers

    def find(self, keys: Keys) -> Slots:
        """Return the row numbers of distinct keys, -1 for unknown ones."""
        return self._probe(keys, self._first_places(keys))[0]

    def remove(self, keys: Keys) -> Slots:
        """Remove distinct known keys, and return the row numbers that become free."""
        slots = self.find(keys)
        places = self._first_places(keys)
        pending = np.arange(len(keys))
        while len(pending):
            pending = pending[self._places[places[pending]] != slots[pending]]
            places[pending] = (places[pending] + 1) & (len(self._places) - 1)
        self._places[places] = _REMOVED
        self._removed += len(keys)
        self._keys[slots] = _NO_KEY
        self._free = np.concatenate([self._free, slots])
        self.size -= len(keys)
        return slots

    def _first_places(self, keys: Keys) -> Slots:
        return (hash_keys(keys) >> self._shift).astype(np.int64)

    def _take_row_numbers(self, count: int) -> Slots:
        """Take free row numbers, those of removed keys first."""
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
        self._allocate(max(places_for(rows), len(self._places) if not self._removed else 0))
        self._removed = 0
        self._insert(self._keys[live], live)

    def _probe(self, keys: Keys, places: Slots) -> tuple[Slots, Slots]:
        """Return the row numbers of keys, probing from `places` on, and the positions of the unknown keys."""
        result = np.full(len(keys), _EMPTY, np.int64)
        pending = np.arange(len(keys))
        missing: list[Slots] = []
        while len(pending):
            slots = self._places[places[pending]]
            matches = self._keys[slots] == keys[pending]
            result[pending[matches]] = slots[matches]
            empty = slots == _EMPTY
            if empty.any():
                missing.append(pending[empty])
            pending = pending[~(matches | empty)]
            places[pending] = (places[pending] + 1) & (len(self._places) - 1)
        return result, np.sort(np.concatenate(missing)) if missing else pending

    def _insert(self, keys: Keys, numbers: Slots) -> None:
        """Put the row numbers of unknown keys into empty places."""
        places = self._first_places(keys)
        pending = np.arange(len(keys))
        while len(pending):
            free = pending[self._places[places[pending]] == _EMPTY]
            self._places[places[free]] = numbers[free]  # of several keys for one place the last wins
            pending = pending[self._places[places[pending]] != numbers[pending]]
            places[pending] = (places[pending] + 1) & (len(self._places) - 1)
