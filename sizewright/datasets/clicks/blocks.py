"""Parse a block of lines of a click log into a batch, and describe the broken lines that are skipped."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.fields import PAD, Fields, padded, parse_ids, parse_numbers


class BrokenLine(NamedTuple):
    """A line that cannot be parsed: its index in the block, and what is wrong with it."""

    line: int
    problem: str


class Parsed(NamedTuple):
    """The rows of a block, and its broken lines."""

    batch: Batch
    broken: int
    faults: list[BrokenLine]
    """The first few broken lines."""
    lines: int


def parse_block(data: bytes, separator: bytes, dense_features: int, tables: int, faults: int = 5) -> Parsed:
    """Parse complete lines into rows, and describe at most `faults` of the broken lines.

    Numeric columns become log(1 + max(x, 0)), the usual transform of Criteo's counts, and 0 where missing. Ids are
    parsed by `parse_ids`. Blank lines are skipped; quotes, and blanks around fields, are dropped.
    """
    if b'"' in data:
        data = data.replace(b'"', b"")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if separator != b" " and (separator + b" " in data or b" " + separator in data):
        data = re.sub(rb" *%b *" % re.escape(separator), lambda _: separator, data)
    text = padded(data if data.endswith(b"\n") else data + b"\n")
    columns = 1 + dense_features + tables
    field_ends = _field_ends(text, separator)
    lines = np.arange(len(field_ends) // columns)
    count = len(lines)
    broken_lines: list[BrokenLine] = []
    if not _all_lines_have(columns, text, field_ends):
        text, lines, count, broken_lines = _drop_broken_lines(text, separator, columns)
        field_ends = _field_ends(text, separator)
    fields = Fields.of(text, field_ends, _lengths(field_ends)).reshape(columns)
    split = 1 + dense_features
    numbers, invalid = parse_numbers(fields.columns(slice(split)))
    bad = _bad_fields(numbers, invalid, fields.columns(slice(1)))
    batch = Batch(
        numbers[:, 0].astype(np.float32),
        np.log1p(np.maximum(numbers[:, 1:], 0.0).astype(np.float32)),
        parse_ids(fields.columns(slice(split, None))),
    )
    if not bad.any():
        return Parsed(batch, len(broken_lines), broken_lines[:faults], count)
    valid = np.asarray(~bad.any(axis=1))
    bad_rows = _describe(fields, bad, lines, faults)
    first = sorted([*broken_lines[:faults], *bad_rows])[:faults]
    return Parsed(select(batch, valid), len(broken_lines) + int((~valid).sum()), first, count)


def select(batch: Batch, rows: NDArray[np.bool_] | slice) -> Batch:
    """Return the selected rows of a batch."""
    return Batch(batch.labels[rows], batch.dense[rows], batch.ids[rows])


def _field_ends(text: bytes, separator: bytes) -> NDArray[np.int64]:
    """Return the offsets at which fields end, not counting the padding."""
    body = np.frombuffer(text, np.uint8)[len(PAD) :]
    tabs = separator == b"\t"  # the neighbour of line feed: one comparison finds both
    hits = (body - np.uint8(9)) < 2 if tabs else (body == ord(separator)) | (body == 10)
    return np.flatnonzero(hits)


def _all_lines_have(columns: int, text: bytes, field_ends: NDArray[np.int64]) -> bool:
    if field_ends.size % columns:
        return False
    last = np.frombuffer(text, np.uint8)[field_ends[columns - 1 :: columns] + len(PAD)]
    feeds = np.count_nonzero(np.frombuffer(text, np.uint8)[len(PAD) :] == 10)
    return bool((last == 10).all()) and feeds == len(last)


def _lengths(field_ends: NDArray[np.int64]) -> NDArray[np.int64]:
    lengths = field_ends.copy()
    lengths[1:] -= field_ends[:-1]
    lengths[1:] -= 1
    return lengths


def _drop_broken_lines(
    text: bytes, separator: bytes, columns: int
) -> tuple[bytes, NDArray[np.int64], int, list[BrokenLine]]:
    """Drop the lines with another number of columns.

    Return the remaining text, the index of each remaining line, the number of all lines, and the dropped lines.
    """
    body = text[len(PAD) :].split(b"\n")[:-1]
    kept_lines: list[int] = []
    broken_lines: list[BrokenLine] = []
    for index, line in enumerate(body):
        line_columns = line.count(separator) + 1
        if line_columns == columns:
            kept_lines.append(index)
        elif line.strip():
            broken_lines.append(
                BrokenLine(index, f"{line_columns} column{'s' * (line_columns != 1)} instead of {columns}")
            )
    rest = padded(b"".join(body[index] + b"\n" for index in kept_lines))
    return rest, np.array(kept_lines, dtype=np.int64), len(body), broken_lines


def _bad_fields(numbers: NDArray[np.float64], invalid: NDArray[np.bool_], label: Fields) -> NDArray[np.bool_]:
    labels = numbers[:, 0]
    bad = invalid | (np.abs(numbers) > np.finfo(np.float32).max)
    last = (label.words[:, 0] >> np.uint64(56)).astype(np.uint8)
    digit = ((last >= ord("0")) & (last <= ord("9"))) | (last == ord("."))  # a mark of a missing number is not a label
    bad[:, 0] |= ((labels != 0) & (labels != 1)) | (label.lengths[:, 0] == 0) | ~digit
    return bad


def _describe(fields: Fields, bad: NDArray[np.bool_], lines: NDArray[np.int64], faults: int) -> list[BrokenLine]:
    rows = np.flatnonzero(bad.any(axis=1))[:faults]
    columns = bad[rows].argmax(axis=1)
    broken_lines = []
    for row, column, field in zip(rows, columns, fields.at((rows, columns)), strict=True):
        shown = repr(field[:20].decode(errors="replace"))
        problem = f"label {shown} is not 0 or 1" if column == 0 else f"column {column + 1} holds {shown}, not a number"
        broken_lines.append(BrokenLine(int(lines[row]), problem))
    return broken_lines
