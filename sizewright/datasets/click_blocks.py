"""A block of lines of a click log to a batch, and what is wrong with the lines that are left out."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.batch import Batch
from sizewright.datasets.click_fields import PAD, Fields, padded, parse_ids, parse_numbers


class BrokenLine(NamedTuple):
    """A line that is no row: its index in the block, and what is wrong with it."""

    line: int
    problem: str


class Parsed(NamedTuple):
    """What a block held."""

    batch: Batch
    broken: int
    faults: list[BrokenLine]
    """The first few broken lines."""
    lines: int


def parse_block(data: bytes, separator: bytes, dense_features: int, tables: int, faults: int = 5) -> Parsed:
    """Rows of whole lines; at most `faults` of the broken ones are described.

    Numeric columns become log(1 + max(x, 0)), as is usual for Criteo's counts, and 0 where missing. Ids are as
    `parse_ids` says. Blank lines are no rows; quotes, and blanks around fields, are dropped.
    """
    if b'"' in data:
        data = data.replace(b'"', b"")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if separator != b" " and (separator + b" " in data or b" " + separator in data):
        data = re.sub(rb" *%b *" % re.escape(separator), lambda _: separator, data)
    text = padded(data if data.endswith(b"\n") else data + b"\n")
    columns = 1 + dense_features + tables
    marks = _marks(text, separator)
    lines = np.arange(len(marks) // columns)
    count = len(lines)
    wrong: list[BrokenLine] = []
    if not _regular(text, marks, columns):
        text, lines, count, wrong = _drop_wrong_lines(text, separator, columns)
        marks = _marks(text, separator)
    fields = Fields.of(text, marks, _lengths(marks)).reshape(columns)
    split = 1 + dense_features
    numbers, unread = parse_numbers(fields.columns(slice(split)))
    bad = _bad_fields(numbers, unread, fields.columns(slice(1)))
    batch = Batch(
        numbers[:, 0].astype(np.float32),
        np.log1p(np.maximum(numbers[:, 1:], 0.0).astype(np.float32)),
        parse_ids(fields.columns(slice(split, None))),
    )
    if not bad.any():
        return Parsed(batch, len(wrong), wrong[:faults], count)
    good = np.asarray(~bad.any(axis=1))
    found = _describe(fields, bad, lines, faults)
    first = sorted([*wrong[:faults], *found])[:faults]
    return Parsed(select(batch, good), len(wrong) + int((~good).sum()), first, count)


def select(batch: Batch, rows: NDArray[np.bool_] | slice) -> Batch:
    """Some rows of a batch."""
    return Batch(batch.labels[rows], batch.dense[rows], batch.ids[rows])


def _marks(text: bytes, separator: bytes) -> NDArray[np.int64]:
    """Where fields end, not counting the padding."""
    body = np.frombuffer(text, np.uint8)[len(PAD) :]
    tabs = separator == b"\t"  # the neighbour of line feed: one comparison finds both
    hits = (body - np.uint8(9)) < 2 if tabs else (body == ord(separator)) | (body == 10)
    return np.flatnonzero(hits)


def _regular(text: bytes, marks: NDArray[np.int64], columns: int) -> bool:
    if marks.size % columns:
        return False
    last = np.frombuffer(text, np.uint8)[marks[columns - 1 :: columns] + len(PAD)]
    feeds = np.count_nonzero(np.frombuffer(text, np.uint8)[len(PAD) :] == 10)
    return bool((last == 10).all()) and feeds == len(last)


def _lengths(marks: NDArray[np.int64]) -> NDArray[np.int64]:
    lengths = marks.copy()
    lengths[1:] -= marks[:-1]
    lengths[1:] -= 1
    return lengths


def _drop_wrong_lines(
    text: bytes, separator: bytes, columns: int
) -> tuple[bytes, NDArray[np.int64], int, list[BrokenLine]]:
    """Without the lines of another number of columns: text, index of each line kept, lines in all, what was dropped."""
    body = text[len(PAD) :].split(b"\n")[:-1]
    kept: list[int] = []
    wrong: list[BrokenLine] = []
    for index, line in enumerate(body):
        found = line.count(separator) + 1
        if found == columns:
            kept.append(index)
        elif line.strip():
            wrong.append(BrokenLine(index, f"{found} column{'s' * (found != 1)} instead of {columns}"))
    rest = padded(b"".join(body[index] + b"\n" for index in kept))
    return rest, np.array(kept, dtype=np.int64), len(body), wrong


def _bad_fields(numbers: NDArray[np.float64], unread: NDArray[np.bool_], label: Fields) -> NDArray[np.bool_]:
    labels = numbers[:, 0]
    bad = unread | (np.abs(numbers) > np.finfo(np.float32).max)
    last = (label.words[:, 0] >> np.uint64(56)).astype(np.uint8)
    digit = ((last >= ord("0")) & (last <= ord("9"))) | (last == ord("."))  # what marks a missing number is no label
    bad[:, 0] |= ((labels != 0) & (labels != 1)) | (label.lengths[:, 0] == 0) | ~digit
    return bad


def _describe(fields: Fields, bad: NDArray[np.bool_], lines: NDArray[np.int64], faults: int) -> list[BrokenLine]:
    rows = np.flatnonzero(bad.any(axis=1))[:faults]
    columns = bad[rows].argmax(axis=1)
    found = []
    for row, column, field in zip(rows, columns, fields.at((rows, columns)), strict=True):
        shown = repr(field[:20].decode(errors="replace"))
        problem = f"label {shown} is not 0 or 1" if column == 0 else f"column {column + 1} holds {shown}, not a number"
        found.append(BrokenLine(int(lines[row]), problem))
    return found
