"""Parse many text fields at once into numbers and ids: eight characters are one 64-bit word (SIMD in a register)."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

ZERO_ID = 1 << 32
"""The id of the token `00000000`, since 0 is the missing id."""

PAD = b"\n" * 8

_HASHED = np.uint64(1 << 61)
_MISSING = (b"\\N", b"NaN", b"nan", b"NULL", b"null", b"None", b"<NA>")
_MISSING_NUMBER = re.compile(rb" *(\\N|nan|null|none|na|n/a|#n/a|<na>|-|\?|) *", re.IGNORECASE)
_NUMBER = re.compile(rb" *-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)? *")


def _each(byte: int) -> np.uint64:
    return np.uint64(int.from_bytes(bytes([byte] * 8), "little"))


_ZEROS = _each(ord("0"))
_KEEP = np.array([0] + [(1 << 64) - (1 << 8 * (8 - length)) for length in range(1, 9)], dtype=np.uint64)


def padded(text: bytes) -> bytes:
    """Pad the text with eight bytes before and 8 to 15 spaces after it.

    The length is then a multiple of eight bytes, and two words can be read from every field end.
    """
    return b"".join((PAD, text, b" " * (16 - len(text) % 8)))


class Fields(NamedTuple):
    """Fields of a text: the end, the length and the last eight bytes of each, in arrays of one shape.

    `text` begins with eight bytes that belong to no field (see `padded`), and `ends` do not count these. The eight
    bytes before an end therefore begin at the same offset in `text`.
    """

    text: bytes
    ends: NDArray[np.int64]
    lengths: NDArray[np.int64]
    words: U64

    @classmethod
    def of(cls, text: bytes, ends: NDArray[np.int64], lengths: NDArray[np.int64]) -> Fields:
        """Return the fields with their words."""
        return cls(text, ends, lengths, _words(text, ends))

    def reshape(self, columns: int) -> Fields:
        """Return the same fields in rows of `columns` columns."""
        shape = (-1, columns)
        return Fields(self.text, self.ends.reshape(shape), self.lengths.reshape(shape), self.words.reshape(shape))

    def columns(self, part: slice) -> Fields:
        """Return some columns of fields in rows."""
        return Fields(self.text, self.ends[:, part], self.lengths[:, part], self.words[:, part])

    def at(self, index: tuple[NDArray[np.intp], ...]) -> list[bytes]:
        """Return the text of each field at an index."""
        ends, lengths = (self.ends[index] + 8).tolist(), self.lengths[index].tolist()
        return [self.text[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def parse_ids(fields: Fields) -> NDArray[np.int64]:
    """Return the ids of the tokens.

    A token of 8 hex characters is that integer, a missing token is 0, and any other token is a hash in [2^61, 2^62).
    The marks that Hive, SQL and pandas write for a missing value (`\\N`, `NULL`, `NaN`, `None`, `<NA>`) are missing.
    The hash chains splitmix64's finaliser (Steele et al., 2014) over the token's bytes, eight at a time; it depends on
    nothing but the bytes. `00000000` becomes 2^32, which keeps it distinct from a missing id.
    """
    is_hex_length = fields.lengths == 8
    ids, faults = _hex(np.where(is_hex_length, fields.words, _ZEROS))
    tokens = np.count_nonzero(fields.lengths)
    if not tokens == np.count_nonzero(is_hex_length) == np.count_nonzero(ids) or np.count_nonzero(faults):
        ids[(ids == 0) & is_hex_length] = ZERO_ID
        index = np.nonzero((fields.lengths != 0) & (~is_hex_length | (faults != 0)))
        if index[0].size:
            hashes = _hash(fields, fields.ends[index], fields.lengths[index])
            ids[index] = np.where(_is_missing(fields.words[index], fields.lengths[index]), 0, hashes)
    return ids.view(np.int64)


def parse_numbers(fields: Fields) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the values of numeric fields, and a mask of the invalid ones (whose value is 0).

    A missing value is 0 and valid.
    """
    values, invalid = _digits(fields.words, fields.lengths)
    if invalid.any():
        index = np.nonzero(invalid)
        missing = _is_missing(fields.words[index], fields.lengths[index])
        values[index] = np.where(missing, 0.0, values[index])
        invalid[index] = ~missing
    if invalid.any():
        index = np.nonzero(invalid)
        values[index], invalid[index] = _signed_or_dot_zero(fields, index)
    if invalid.any():
        index = np.nonzero(invalid)
        texts = fields.at(index)
        numbers = [bool(_NUMBER.fullmatch(text)) for text in texts]
        values[index] = [float(text) if ok else 0.0 for text, ok in zip(texts, numbers, strict=True)]
        missing = np.array([bool(_MISSING_NUMBER.fullmatch(text)) for text in texts])
        invalid[index] = ~(np.array(numbers) | missing)
    return values, invalid


def _is_missing(words: U64, lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the fields that hold a frequent mark of a missing value."""
    words = words & _KEEP.take(lengths, mode="clip")
    is_missing = np.zeros(words.shape, bool)
    for mark in _MISSING:
        is_missing |= (words == np.uint64(int.from_bytes(mark.rjust(8, b"\0"), "little"))) & (lengths == len(mark))
    return is_missing


def _words(text: bytes, ends: NDArray[np.int64]) -> U64:
    """Return the eight bytes before each end, the first of them lowest, from the two aligned words that hold them.

    NumPy takes aligned words five times as fast as others.
    """
    aligned = np.frombuffer(text, "<u8", len(text) // 8)
    index = ends >> 3
    shift = ((ends & 7) << 3).view(np.uint64)
    low, high = aligned.take(index, mode="clip"), aligned[1:].take(index, mode="clip")
    low >>= shift
    np.subtract(np.uint64(64), shift, out=shift)
    high <<= shift  # by 64 gives 0
    low |= high
    return low


def _signed_or_dot_zero(
    fields: Fields, index: tuple[NDArray[np.intp], ...]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Parse `-3` and `17.0`, the two frequent forms besides plain digits."""
    ends, lengths = fields.ends[index], fields.lengths[index]
    text = np.frombuffer(fields.text, np.uint8)
    negative = (text[ends + 8 - lengths] == ord("-")) & (lengths > 1)
    lengths = lengths - negative
    dot_zero = (text[ends + 7] == ord("0")) & (text[ends + 6] == ord(".")) & (lengths > 2)
    values, invalid = _digits(_words(fields.text, ends - 2 * dot_zero), lengths - 2 * dot_zero)
    return np.where(negative, -values, values), invalid


def _digits(words: U64, lengths: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the values of fields of up to eight digits, and a mask of all other fields."""
    words = words ^ _ZEROS
    words &= _KEEP.take(lengths, mode="clip")
    check = words + _each(0x76)
    check |= words
    check &= _each(0x80)
    invalid = (check != 0) | (lengths > 8)
    for factor, shift, mask in ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF)):
        words *= np.uint64(1 + (factor << shift))  # the first of each pair of lanes times its weight, plus the second
        words >>= np.uint64(shift)
        words &= np.uint64(mask)
    words *= np.uint64(1 + (10_000 << 32))
    words >>= np.uint64(32)
    return words.astype(np.float64), invalid


def _hex(words: U64) -> tuple[U64, U64]:
    """Return the values of eight hex digits, and words that are not 0 where a character is not a hex digit."""
    words = words | _each(0x20)  # to lower case; ten control characters turn into digits, which no log holds
    letters = words >> np.uint64(6)
    letters &= _each(1)
    words -= letters * np.uint64(ord("a") - ord("0") - 10)  # the letters now follow the digits
    words ^= _ZEROS
    faults = words + _each(6)
    letters <<= np.uint64(4)
    faults ^= letters  # from 10 on it must have been a letter, below 10 not
    faults |= words
    faults &= _each(0xF0)
    for shift, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF)):
        words *= np.uint64(1 + (1 << (shift + shift // 2)))  # the first of each pair of lanes is the high one
        words >>= np.uint64(shift)
        words &= np.uint64(mask)
    words *= np.uint64(1 + (1 << 48))
    words >>= np.uint64(32)
    return words, faults


def _hash(fields: Fields, ends: NDArray[np.int64], lengths: NDArray[np.int64]) -> U64:
    state = lengths.astype(np.uint64)
    for done in range(0, int(lengths.max()), 8):
        active = np.flatnonzero(lengths > done)
        words = _words(fields.text, ends[active] - done) & _KEEP.take(lengths[active] - done, mode="clip")
        state[active] = mix(state[active] ^ words)
    return (state >> np.uint64(3)) | _HASHED


def mix(words: U64) -> U64:
    """Apply splitmix64's step and finaliser, which turn any 64-bit words into uniform ones."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
