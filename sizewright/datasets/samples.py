"""The samples of a job by number, for workers that train ranges of them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.allocator import keep_freed_memory
from sizewright.datasets.batch import Batch
from sizewright.datasets.click_blocks import Parsed, select
from sizewright.datasets.click_files import Block, LogFile, cut
from sizewright.datasets.click_logs import BLOCK_BYTES, ClickLog, join
from sizewright.datasets.source import open_log
from sizewright.datasets.synthetic import SyntheticLog
from sizewright.errors import ClickLogError
from sizewright.spec import Job

_DRAWN_AT_ONCE = 1024


class SampleSource(Protocol):
    """An endless sequence of samples, read by their numbers from 0. It serves one thread."""

    def read(self, start: int, count: int) -> Batch:
        """Samples `start` to `start + count - 1`: labels (n,), dense (n, dense_features), ids (n, tables).

        A log repeats after its last line. Lines that are no rows keep their numbers but are left out, so that n may be
        less than `count`, even 0. The arrays may be views: do not write to them. Raises ClickLogError when the log
        cannot be read or too many of its rows are broken, and ValueError for a negative start or a count below 1.
        """


def open_samples(job: Job, *, scale: float = 1.0, seed: int = 0) -> SampleSource:
    """The job's data, ids folded into its tables' rows times `scale` (the hashing trick: id % rows).

    `seed` is that of synthetic data. Ascending reads are the fast ones. What is returned can be pickled until it is
    first read. Raises ClickLogError when the log cannot be read, its columns are not those of the model, or the
    tables' rows are still to be counted.
    """
    tables = job.model.tables
    if not tables.known:
        raise ClickLogError(
            "The rows of this job's tables are still to be counted in its data.",
            "Count them with count_rows(job), or list them as model.tables.rows.",
        )
    if job.data.format == "synthetic":
        log = SyntheticLog(tables.sizes(), dense_features=job.model.dense_features, zipf=job.data.zipf, seed=seed)
        return _Folded(SyntheticSamples(log), tables.sizes(scale))
    return _Folded(LogSamples(open_log(job)), tables.sizes(scale))


class SyntheticSamples:
    """Samples of a synthetic log; each depends on the log's seed and its own number alone."""

    def __init__(self, log: SyntheticLog) -> None:
        self._log = log
        self._number, self._block = -1, log.block(0, 0)

    def read(self, start: int, count: int) -> Batch:
        """As SampleSource says; n is always `count`."""
        _check_range(start, count)
        parts, end = [], start + count
        while start < end:
            number, first = divmod(start, _DRAWN_AT_ONCE)
            last = min(first + end - start, _DRAWN_AT_ONCE)
            parts.append(select(self._drawn(number), slice(first, last)))
            start += last - first
        return join(parts)

    def _drawn(self, number: int) -> Batch:
        if number != self._number:
            self._number, self._block = number, self._log.block(number, _DRAWN_AT_ONCE)
        return self._block


class LogSamples:
    """Rows of a click log by their line number, headers not counted, over all its files.

    Text is cut into blocks of some `block_bytes`; where each begins is remembered as far as was read, so that a jump
    ahead only counts lines. A gzip file is decompressed from its start again when a block is read that lies behind.
    Rows are decoded as they are asked for, and ever further ahead while reads follow one another.
    """

    def __init__(self, log: ClickLog, *, block_bytes: int = BLOCK_BYTES) -> None:
        self._log = log
        self._files = [_Lines(file, block_bytes) for file in log.files]
        self._total: int | None = None  # lines, once the end of the last file was seen
        self._decoded, self._ahead = _NOTHING, 0  # the lines decoded last, and how many at once was aimed at
        self._lines = 0  # decoded in all

    def read(self, start: int, count: int) -> Batch:
        """As SampleSource says. Where too few lines were read to judge, broken rows pass (see ClickLog)."""
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
        self._judge()
        return join(parts)

    def _decode(self, position: int, count: int) -> int:
        """Decodes lines from `position` on, at least one of them; its line number in the log."""
        line, before, text = self._find(position)
        follows = line == self._decoded.end
        self._ahead = max(count, min(2 * self._ahead, text.end - text.first) if follows else 0)
        block = text.lines(line - before, self._ahead)
        lines_before = int(text.file.header) + line - before
        parsed = self._log.parse(text.file, block, lines_before, faults=text.end - text.first)
        rows = _lines_of_rows(block.data, parsed)
        self._decoded = _Decoded(line, line + parsed.lines, parsed.batch, rows)
        self._lines += parsed.lines
        return line

    def _judge(self) -> None:
        """The log's own check waits for enough rows to judge by: a log of fewer is judged once all are read."""
        if self._total is None and self._files[-1].ended:
            self._total = sum(file.passed for file in self._files)
        if self._total and self._lines >= self._total:
            self._log.check()
            if self._log.report.rows == self._log.report.broken:
                next(self._log.batches(1))  # raises when there is no row in all of the log

    def _find(self, position: int) -> tuple[int, int, _Text]:
        """The line number in the log, how many lines lie in files before, and the text that holds it."""
        line = position % self._total if self._total else position
        before = 0
        for file in self._files:
            text = file.find(line - before)
            if text is not None:
                return line, before, text
            before += file.passed
        if not before:
            raise self._log.nothing(0)
        self._total = before
        return self._find(position)


class _Decoded(NamedTuple):
    """Lines [first, end) of a log as a batch; `lines` tells the line of each row where not every line is one."""

    first: int
    end: int
    batch: Batch
    lines: NDArray[np.int64] | None

    def rows(self, first: int, end: int) -> Batch:
        begin, stop = first - self.first, end - self.first
        if self.lines is not None:
            begin, stop = np.searchsorted(self.lines, (begin, stop)).tolist()
        return select(self.batch, slice(begin, stop))


_NOTHING = _Decoded(0, 0, Batch(np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, np.int64)), None)


class _Text:
    """Lines [first, end) of a file."""

    def __init__(self, file: LogFile, block: Block, first: int) -> None:
        self.file, self.first, self._block = file, first, block
        self._feeds: NDArray[np.bool_] = np.frombuffer(block.data, np.uint8) == 10
        feeds = int(np.count_nonzero(self._feeds))  # in a fifth of the time of bytes.count
        self.end = first + feeds + (not block.data.endswith(b"\n"))
        self._starts = np.empty(0, dtype=np.int64)

    def lines(self, first: int, count: int) -> Block:
        """At most `count` lines from line `first` of the file on."""
        if first == self.first and first + count >= self.end:
            return self._block
        if not self._starts.size:
            self._starts = np.concatenate(([0], np.flatnonzero(self._feeds) + 1))
        start = int(self._starts[first - self.first])
        stop = int(self._starts[first + count - self.first]) if first + count < self.end else None
        return Block(self._block.data[start:stop], self._block.offset + start)


class _Lines:
    """Finds lines of a file by number, from an index that grows as blocks of it are passed."""

    def __init__(self, file: LogFile, block_bytes: int) -> None:
        self.file, self.ended = file, False
        self._block_bytes = block_bytes
        self._ends = array("q")  # lines up to the end of each block passed
        self._places = array("q", [0])  # of each block passed and of the next, as `cut` counts them
        self._ahead: Iterator[Block] = iter(())
        self._at = -1  # the block that comes next from there
        self._text: _Text | None = None

    @property
    def passed(self) -> int:
        """Lines known so far: all when `ended`."""
        return self._ends[-1] if self._ends else 0

    def find(self, line: int) -> _Text | None:
        """The block that holds a line, None where the file ends before."""
        if self.ended and line >= self.passed:
            self._text, self._ahead, self._at = None, iter(()), -1  # nothing is held of files that were left
            return None
        if self._text is None or not self._text.first <= line < self._text.end:
            self._text = self._seek(line)
        return self._text

    def _seek(self, line: int) -> _Text | None:
        place = bisect_right(self._ends, line)
        if place != self._at:
            self._ahead, self._at = cut(self.file, self._block_bytes, self._places[place], 1), place
        try:
            for block in self._ahead:
                text = self._pass(block)
                if line < text.end:
                    return text
        except ClickLogError:
            self._at = -1  # to meet the damage again when asked again, not an end
            raise
        self.ended = True
        return None

    def _pass(self, block: Block) -> _Text:
        first = self._ends[self._at - 1] if self._at else 0
        text = _Text(self.file, block, first)
        if self._at == len(self._ends):
            place = (block.offset - self.file.body) // self._block_bytes + 1
            self._ends.append(text.end)
            self._places.append(place)
            self.ended = block.offset + len(block.data) < self.file.body + place * self._block_bytes
        self._at += 1
        return text


class _Folded:
    """The same samples with ids % rows, table by table."""

    def __init__(self, source: SampleSource, rows: tuple[int, ...]) -> None:
        self._source, self._rows = source, np.array(rows, dtype=np.int64)

    def read(self, start: int, count: int) -> Batch:
        batch = self._source.read(start, count)
        beyond = (batch.ids >= self._rows).any()
        return batch._replace(ids=batch.ids % self._rows) if beyond else batch


def _lines_of_rows(data: bytes, parsed: Parsed) -> NDArray[np.int64] | None:
    """The line of each row of a block, None where every line is one. All broken lines must be described."""
    if len(parsed.batch.labels) == parsed.lines:
        return None
    broken = {fault.line for fault in parsed.faults}
    lines = data.replace(b'"', b"").split(b"\n")
    return np.array([k for k, line in enumerate(lines) if line.strip() and k not in broken], dtype=np.int64)


def _check_range(start: int, count: int) -> None:
    if start < 0 or count < 1:
        raise ValueError(f"there are no samples {start} to {start + count - 1}")
