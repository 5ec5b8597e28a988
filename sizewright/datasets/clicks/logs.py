"""A streaming reader of click logs in the Criteo format."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from pydantic import Field

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.blocks import Parsed, parse_block, select
from sizewright.datasets.clicks.files import Block, LogFile, cut, find_files
from sizewright.datasets.malloc import keep_freed_memory
from sizewright.errors import ClickLogError
from sizewright.formatting import format_count
from sizewright.spec._base import Record

BLOCK_BYTES = 1 << 20
"""Bytes of text in a block (some 5,000 rows): a quarter of it reads a tenth slower, and more is no faster."""

_MIN_ROWS_TO_JUDGE = 1000
_FAULTS_KEPT = 5
_WRONG_FORMAT_SHARE = 0.2
"""Where the share of broken rows is larger, the log has another format, and skipping rows would not help."""


class Fault(Record):
    """The location of a broken row, and what is wrong with it."""

    path: str
    offset: int = Field(description="bytes before its line in the (decompressed) file")
    line: int | None = Field(description="its line number, from 1; unknown when only a shard was read")
    problem: str

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line is not None else f"byte {self.offset}"
        return f"{self.path}, {where}: {self.problem}"


class ReadReport(Record):
    """Counts of all rows and of broken rows over all passes of a reader, and the first broken rows."""

    rows: int = 0
    broken: int = 0
    faults: tuple[Fault, ...] = ()


class ClickLog:
    """Rows of a label, `dense_features` numeric columns and `tables` categorical ids, from one file or many.

    A file is text (gzip, bzip2, xz, zstd, lz4 or plain, or in a tar or zip archive) or Parquet. Text is separated by
    tabs, commas, semicolons, bars, Ctrl-A or spaces, with a header or without; the first line decides. The columns
    of Parquet are read by the names label, I1 … and C1 …, or in their order. `path` is one path or a glob, whose files
    are read in sorted order. Numeric columns are returned as log(1 + max(x, 0)), missing ones as 0. An id of 8 hex
    characters is that integer, a missing one is 0 in its table, and any other token gets a hash that is the same in
    every process (`fields.parse_ids`).

    A row with a wrong number of columns, a label other than 0 or 1, or a numeric column that is not a number is skipped
    and counted in `report`. ClickLogError is raised when the share of such rows exceeds `max_broken_share`, and for
    every file that cannot be read as such a log.
    """

    def __init__(
        self, path: str, *, dense_features: int = 13, tables: int = 26, max_broken_share: float = 0.01
    ) -> None:
        self.path = str(path)
        self.dense_features, self.tables = dense_features, tables
        self.max_broken_share = max_broken_share
        self.report = ReadReport()
        self.files = find_files(self.path, dense_features, tables)

    def batches(self, batch_size: int, *, shard: tuple[int, int] = (0, 1), repeat: bool = False) -> Iterator[Batch]:
        """Yield batches of `batch_size` rows: labels (n,), dense (n, dense_features), ids (n, tables).

        `shard` (i, n) yields part i of n: the parts are disjoint, cover all rows, and are of about equal size. The
        last batch may be smaller; with `repeat` the log starts again instead, endlessly. Raises ClickLogError as
        the class describes, and when there is nothing to repeat; ValueError for an invalid shard or batch size.
        """
        if not 0 <= shard[0] < shard[1]:
            raise ValueError(f"shard {shard} is not (i, n) with 0 <= i < n")
        if batch_size < 1:
            raise ValueError("batch_size must be at least 1")
        return rebatch(self._parts(shard, repeat), batch_size)

    def parse(self, file: LogFile, block: Block, lines_before: int | None, faults: int = _FAULTS_KEPT) -> Parsed:
        """Parse a block of one of `files`, count its rows in `report`, and describe at most `faults` broken ones.

        `lines_before` is the number of lines of the file before the block, where it is known. Raises ClickLogError
        when at least 1,000 rows were read and the share of broken ones is above `max_broken_share`.
        """
        parsed = parse_block(block.data, file.separator, self.dense_features, self.tables, faults)
        self._count(file, block, parsed, lines_before)
        if self.report.rows >= _MIN_ROWS_TO_JUDGE:
            self.check()
        return parsed

    def check(self) -> None:
        """Raise ClickLogError when the share of broken rows in `report` is above `max_broken_share`."""
        report = self.report
        if report.broken <= self.max_broken_share * report.rows:
            return
        remedy = "Fix the log, or raise data.max_broken_share in the job file to skip such rows."
        if report.broken >= _WRONG_FORMAT_SHARE * report.rows:
            columns = f"a label of 0 or 1, {self.dense_features} numbers, {self.tables} ids"
            remedy = f"Check the format of the log: {columns}."
        raise ClickLogError(
            f"{report.broken:,} of the first {format_count(report.rows, 'row')} of {self.path} "
            f"{'is' if report.broken == 1 else 'are'} broken, more than the allowed share of "
            f"{self.max_broken_share:.3g}. The first is {report.faults[0]}.",
            remedy,
        )

    def _parts(self, shard: tuple[int, int], repeat: bool) -> Iterator[Batch]:
        keep_freed_memory()
        while True:
            before, good = self.report.rows, 0
            for number, file in enumerate(self.files):
                for batch in self._file(file, number, shard):
                    good += len(batch.labels)
                    yield batch
            if not good and (repeat or shard[1] == 1):
                raise self.nothing(self.report.rows - before, shard)
            if not repeat:
                return

    def _file(self, file: LogFile, number: int, shard: tuple[int, int]) -> Iterator[Batch]:
        part, parts = shard
        total = sum(each.size for each in self.files)
        block_bytes = min(BLOCK_BYTES, max(256, math.ceil(total / (4 * parts))))
        lines_before = int(file.header)
        rows = 0
        for block in cut(file, block_bytes, (part - number) % parts, parts):
            parsed = self.parse(file, block, lines_before if parts == 1 else None)
            lines_before += parsed.lines
            rows += len(parsed.batch.labels) + parsed.broken
            if len(parsed.batch.labels):
                yield parsed.batch
        if rows:
            self.check()

    def _count(self, file: LogFile, block: Block, parsed: Parsed, lines_before: int | None) -> None:
        faults = self.report.faults
        if parsed.faults and len(faults) < _FAULTS_KEPT:
            starts = np.cumsum([0, *(len(line) + 1 for line in block.data.split(b"\n"))])
            for line, problem in parsed.faults[:_FAULTS_KEPT]:
                number = None if lines_before is None else lines_before + line + 1
                fault = Fault(path=file.name, offset=block.offset + int(starts[line]), line=number, problem=problem)
                faults += (fault,) if fault not in faults else ()
        self.report = ReadReport(
            rows=self.report.rows + len(parsed.batch.labels) + parsed.broken,
            broken=self.report.broken + parsed.broken,
            faults=faults[:_FAULTS_KEPT],
        )

    def nothing(self, rows: int, shard: tuple[int, int] = (0, 1)) -> ClickLogError:
        """Return the error for a log, or a shard of it, without a row to train on, after `rows` rows were read."""
        if shard[1] > 1:
            message = f"{self.path} is too small: part {shard[0] + 1} of {shard[1]} has no row to train on."
            return ClickLogError(message, "Use fewer workers or a longer log.")
        if rows:
            all_of = "The only row" if rows == 1 else f"All {rows:,} rows"
            message = f"{all_of} of {self.path} {'is' if rows == 1 else 'are'} broken."
            return ClickLogError(message, f"The first: {self.report.faults[0]}.")
        return ClickLogError(f"The click log {self.path} holds no rows.", "Check that it was written to its end.")


def rebatch(parts: Iterator[Batch], batch_size: int) -> Iterator[Batch]:
    """Yield the same rows in the same order in batches of `batch_size` rows; the last batch may be smaller."""
    pending: list[Batch] = []
    rows = 0
    for part in parts:
        start, end = batch_size - rows if rows else 0, len(part.labels)
        if rows:
            pending.append(select(part, slice(start)))
            rows += min(start, end)
            if rows < batch_size:
                continue
            yield join(pending)
        while start + batch_size <= end:
            yield select(part, slice(start, start + batch_size))
            start += batch_size
        pending, rows = [select(part, slice(start, None))], end - start
    if rows:
        yield join(pending)


def join(parts: list[Batch]) -> Batch:
    """Concatenate batches, in order."""
    if len(parts) == 1:
        return parts[0]
    return Batch(
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.dense for part in parts]),
        np.concatenate([part.ids for part in parts]),
    )
