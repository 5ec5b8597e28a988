"""Random access to a job's samples by number, for workers that train ranges of them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.blocks import Parsed, select
from sizewright.datasets.clicks.files import Block, LogFile, cut
from sizewright.datasets.clicks.logs import BLOCK_BYTES, ClickLog, join
from sizewright.datasets.clicks.source import column_rows, open_log, synthetic_log
from sizewright.datasets.clicks.synthetic import SyntheticLog
from sizewright.datasets.malloc import keep_freed_memory
from sizewright.errors import ClickLogError
from sizewright.spec import Job

_SYNTHETIC_BLOCK = 1024


class SampleSource(Protocol):
    """An endless sequence of samples, read by their numbers from 0, for use by one thread."""

    def read(self, start: int, count: int) -> Batch:
        """Read samples `start` to `start + count - 1`: labels (n,), dense (n, dense_features), ids (n, id columns).

        A log repeats after its last line. Broken and blank lines keep their numbers but are skipped, so that n may be
        less than `count`, even 0. The arrays may be views: do not write to them. Raises ClickLogError when the log
        cannot be read or too many of its rows are broken, and ValueError for a negative start or a count below 1.
        """


def open_samples(job: Job, *, scale: float = 1.0, seed: int = 0) -> SampleSource:
    """Open the job's data, its ids folded into the tables (the hashing trick: id % rows).

    The rows of each table are multiplied by `scale`. `seed` is the seed of synthetic data. Ascending reads are fast.
    The source can be pickled until its first read. Raises ClickLogError when the log cannot be read, its columns do
    not match the model, or the tables' rows are not counted yet.
    """
    tables = job.model.tables
    if not tables.known:
        raise ClickLogError(
            "The rows of this job's tables are not counted yet.",
            "Count them with count_rows(job), or list them as model.tables.rows.",
        )
    if job.data.format == "synthetic":
        return _Folded(SyntheticSamples(synthetic_log(job, seed)), column_rows(tables, scale))
    return _Folded(LogSamples(open_log(job)), column_rows(tables, scale))


class SyntheticSamples:
    """Samples of a synthetic log; each depends only on the log's seed and on its number."""

    def __init__(self, log: SyntheticLog) -> None:
        self._log = log
        self._number, self._block = -1, log.block(0, 0)

    def read(self, start: int, count: int) -> Batch:
        """Read samples, see SampleSource; n is always `count`."""
        _check_range(start, count)
        parts, end = [], start + count
        while start < end:
            number, first = divmod(start, _SYNTHETIC_BLOCK)
            last = min(first + end - start, _SYNTHETIC_BLOCK)
            parts.append(select(self._drawn(number), slice(first, last)))
            start += last - first
        return join(parts)

    def _drawn(self, number: int) -> Batch:
        if number != self._number:
            self._number, self._block = number, self._log.block(number, _SYNTHETIC_BLOCK)
        return self._block


class LogSamples:
    """Rows of a click log by line number, over all its files; headers are not counted.

    Text is cut into blocks of about `block_bytes`. The start of each block read so far is indexed, so that a jump ahead
    only counts lines. A gzip file is decompressed from its start again when an earlier block is read. Rows are decoded
    on demand, and with a growing read-ahead while reads are sequential.
    """

    def __init__(self, log: ClickLog, *, block_bytes: int = BLOCK_BYTES) -> None:
        self._log = log
        self._files = [_FileIndex(file, block_bytes) for file in log.files]
        self._total: int | None = None  # lines of all files, once the end of the last file was read
        self._decoded = _NO_LINES  # the lines decoded last
        self._read_ahead = 0  # lines to decode at once
        self._lines_decoded = 0

    def read(self, start: int, count: int) -> Batch:
        """Read samples, see SampleSource. Broken rows pass until enough lines were read to judge (see ClickLog)."""
        _check_range(start, count)
        keep_freed_memory()
        parts, end = [], start + count
        while start < end:
            line = start % self._total if self._total else start
            if not self._decoded.first <= line < self._decoded.end:
                line = self._decode(start, end - start)
            last = min(line + end - start, self._decoded.end)
            parts.append(self._decoded.rows(line, last))
            start += last - line
        self._check_broken_share()
        return join(parts)

    def _decode(self, position: int, count: int) -> int:
        """Decode one or more lines from `position` on, and return the line number of `position` in the log."""
        line, before, text = self._find(position)
        is_sequential = line == self._decoded.end
        self._read_ahead = max(count, min(2 * self._read_ahead, text.end - text.first) if is_sequential else 0)
        block = text.lines(line - before, self._read_ahead)
        lines_before = int(text.file.header) + line - before
        parsed = self._log.parse(text.file, block, lines_before, faults=text.end - text.first)
        rows = _lines_of_rows(block.data, parsed)
        self._decoded = _Decoded(line, line + parsed.lines, parsed.batch, rows)
        self._lines_decoded += parsed.lines
        return line

    def _check_broken_share(self) -> None:
        """Check a log that is too short for the check in `ClickLog.parse`, once all of its lines are read."""
        if self._total is None and self._files[-1].ended:
            self._total = sum(file.line_count for file in self._files)
        if self._total and self._lines_decoded >= self._total:
            self._log.check()
            if self._log.report.rows == self._log.report.broken:
                next(self._log.batches(1))  # raises when the whole log has no row

    def _find(self, position: int) -> tuple[int, int, _TextBlock]:
        """Return the line number in the log, the number of lines in earlier files, and the block with the line."""
        line = position % self._total if self._total else position
        before = 0
        for file in self._files:
            text = file.find(line - before)
            if text is not None:
                return line, before, text
            before += file.line_count
        if not before:
            raise self._log.nothing(0)
        self._total = before
        return self._find(position)


class _Decoded(NamedTuple):
    """Lines [first, end) of a log as a batch; `lines` holds the line of each row where not every line is a row."""

    first: int
    end: int
    batch: Batch
    lines: NDArray[np.int64] | None

    def rows(self, first: int, end: int) -> Batch:
        begin, stop = first - self.first, end - self.first
        if self.lines is not None:
            begin, stop = np.searchsorted(self.lines, (begin, stop)).tolist()
        return select(self.batch, slice(begin, stop))


_NO_LINES = _Decoded(0, 0, Batch(np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, np.int64)), None)


class _TextBlock:
    """Lines [first, end) of a file."""

    def __init__(self, file: LogFile, block: Block, first: int) -> None:
        self.file, self.first, self._block = file, first, block
        self._feeds: NDArray[np.bool_] = np.frombuffer(block.data, np.uint8) == 10
        feeds = int(np.count_nonzero(self._feeds))  # takes a fifth of the time of bytes.count
        self.end = first + feeds + (not block.data.endswith(b"\n"))
        self._starts = np.empty(0, dtype=np.int64)

    def lines(self, first: int, count: int) -> Block:
        """Return at most `count` lines, from line `first` of the file on."""
        if first == self.first and first + count >= self.end:
            return self._block
        if not self._starts.size:
            self._starts = np.concatenate(([0], np.flatnonzero(self._feeds) + 1))
        start = int(self._starts[first - self.first])
        stop = int(self._starts[first + count - self.first]) if first + count < self.end else None
        return Block(self._block.data[start:stop], self._block.offset + start)


class _FileIndex:
    """An index of a file that finds lines by number; it grows as blocks are read."""

    def __init__(self, file: LogFile, block_bytes: int) -> None:
        self.file, self.ended = file, False
        self._block_bytes = block_bytes
        self._ends = array("q")  # lines up to the end of each block read
        self._block_indexes = array("q", [0])  # of each block read and of the next, as `cut` counts them
        self._blocks: Iterator[Block] = iter(())
        self._next_block = -1  # position in `_ends` of the next block from `_blocks`
        self._text: _TextBlock | None = None

    @property
    def line_count(self) -> int:
        """Number of lines read so far: all lines when `ended`."""
        return self._ends[-1] if self._ends else 0

    def find(self, line: int) -> _TextBlock | None:
        """Return the block that holds a line, or None where the file ends before it."""
        if self.ended and line >= self.line_count:
            self._text, self._blocks, self._next_block = None, iter(()), -1  # release a file that is done
            return None
        if self._text is None or not self._text.first <= line < self._text.end:
            self._text = self._seek(line)
        return self._text

    def _seek(self, line: int) -> _TextBlock | None:
        position = bisect_right(self._ends, line)
        if position != self._next_block:
            self._blocks = cut(self.file, self._block_bytes, self._block_indexes[position], 1)
            self._next_block = position
        try:
            for block in self._blocks:
                text = self._index(block)
                if line < text.end:
                    return text
        except ClickLogError:
            self._next_block = -1  # the next call meets the damage again, instead of an end
            raise
        self.ended = True
        return None

    def _index(self, block: Block) -> _TextBlock:
        first = self._ends[self._next_block - 1] if self._next_block else 0
        text = _TextBlock(self.file, block, first)
        if self._next_block == len(self._ends):
            next_index = (block.offset - self.file.body) // self._block_bytes + 1
            self._ends.append(text.end)
            self._block_indexes.append(next_index)
            self.ended = block.offset + len(block.data) < self.file.body + next_index * self._block_bytes
        self._next_block += 1
        return text


class _Folded:
    """The same samples with ids % rows, column by column."""

    def __init__(self, source: SampleSource, rows: tuple[int, ...]) -> None:
        self._source, self._rows = source, np.array(rows, dtype=np.int64)

    def read(self, start: int, count: int) -> Batch:
        batch = self._source.read(start, count)
        beyond = (batch.ids >= self._rows).any()
        return batch._replace(ids=batch.ids % self._rows) if beyond else batch


def _lines_of_rows(data: bytes, parsed: Parsed) -> NDArray[np.int64] | None:
    """Return the line of each row of a block, None where every line is a row. All broken lines must be described."""
    if len(parsed.batch.labels) == parsed.lines:
        return None
    broken = {fault.line for fault in parsed.faults}
    lines = data.replace(b'"', b"").split(b"\n")
    return np.array([k for k, line in enumerate(lines) if line.strip() and k not in broken], dtype=np.int64)


def _check_range(start: int, count: int) -> None:
    if start < 0 or count < 1:
        raise ValueError(f"there are no samples {start} to {start + count - 1}: start from 0 and read at least 1")
