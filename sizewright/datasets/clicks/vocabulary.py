"""Count the rows that a job's tables need: distinct ids in the head of its log, extrapolated to all samples."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from sizewright.datasets.clicks.distinct_counts import extrapolate
from sizewright.datasets.clicks.fields import mix
from sizewright.datasets.clicks.logs import ClickLog
from sizewright.datasets.clicks.row_cache import RowCache
from sizewright.datasets.clicks.source import open_log
from sizewright.spec import Job
from sizewright.spec._base import Record, validate_json
from sizewright.task_progress import report_progress

_LOG = logging.getLogger(__name__)
_BATCH_ROWS = 1 << 15
_IDS_IN_MEMORY = 1 << 25
"""Ids in memory over all tables: at 16 bytes each with their counts, half a GiB at most."""
_GROWTH_SAMPLES = tuple(int(1000 * 1.5**i) for i in range(40))
"""Numbers of samples at which the growth of the tables is recorded."""


class TableVocabulary(Record):
    """Distinct ids of one table, including the missing one."""

    seen: int = Field(description="distinct ids in the rows read")
    estimate: int = Field(description="distinct ids expected in all samples of the job")
    lower: int
    upper: int
    growth: tuple[int, ...] = Field(
        default=(), description="distinct ids after each of the vocabulary's `growth_samples`"
    )


class Vocabulary(Record):
    """Distinct ids of each table of a job."""

    samples_read: int = Field(description="rows of the log that were looked at")
    samples: int = Field(description="samples of the job, for which the estimates stand")
    exact: bool = Field(description="every sample of the job was read and every id kept: nothing is estimated")
    tables: tuple[TableVocabulary, ...]
    growth_samples: tuple[int, ...] = Field(default=(), description="samples after which growth was noted")

    @property
    def rows(self) -> tuple[int, ...]:
        """The estimate of each table, for `Job.with_rows`."""
        return tuple(table.estimate for table in self.tables)


class IdCounts(NamedTuple):
    """Counts of the sampled distinct ids, and the share of all distinct ids that these are."""

    counts: NDArray[np.int64]
    share: float


class DistinctCounter:
    """Counts the distinct ids of a stream, with at most `capacity` ids in memory.

    When there are more, only ids whose hash begins with one more zero bit are kept, with their full counts (adaptive
    sampling: Flajolet, Computing 43, 1990), which leaves a uniform sample of the ids with a known share. Its relative
    standard error is about 1.2/√capacity.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._level = 0
        self._ids = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)

    def add(self, ids: NDArray[np.int64]) -> None:
        """Count more ids (n,)."""
        new, counts = np.unique(self._sampled(ids), return_counts=True)
        place = np.searchsorted(self._ids, new)
        known = np.zeros(len(new), dtype=bool)
        inside = place < len(self._ids)
        known[inside] = self._ids[place[inside]] == new[inside]
        self._counts[place[known]] += counts[known]
        self._ids = np.insert(self._ids, place[~known], new[~known])
        self._counts = np.insert(self._counts, place[~known], counts[~known])
        while len(self._ids) > self.capacity:
            self._level += 1
            keep = _zero_bits(self._ids, self._level)
            self._ids, self._counts = self._ids[keep], self._counts[keep]

    @property
    def seen(self) -> int:
        """Estimated number of distinct ids so far."""
        return len(self._ids) << self._level

    def id_counts(self) -> IdCounts:
        """Return the counts of the sampled ids, and the share of all distinct ids that these are expected to be."""
        return IdCounts(self._counts, 0.5**self._level)

    def _sampled(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids[_zero_bits(ids, self._level)] if self._level else ids


def count_rows(job: Job, *, max_rows_read: int = 1_000_000) -> Vocabulary:
    """Read at most `max_rows_read` rows of the job's log, and estimate the rows that each table needs.

    The count is exact when as many rows were read as the job has samples. A shorter log is taken as the head of a
    longer one, and `distinct_counts.extrapolate` estimates the rest. The estimates assume rows in random order: where
    new ids keep arriving with time, more rows are needed. Memory is bounded: at most 32 million ids over all tables are
    kept (`DistinctCounter`). An unchanged log that was counted before is not read again (`row_cache`). Raises
    ClickLogError when the job has no log or it cannot be read.
    """
    log, samples = open_log(job), job.samples or 0
    paths = [file.path for file in log.files]
    cache = RowCache(paths, [log.dense_features, log.tables, log.max_broken_share, samples, max_rows_read])
    with suppress(ValidationError):  # not cached, or written by another version
        return validate_json(Vocabulary, cache.read() or "")
    vocabulary = _count(log, samples, min(max_rows_read, samples))
    cache.write(vocabulary.model_dump_json())
    return vocabulary


def _count(log: ClickLog, samples: int, max_rows: int) -> Vocabulary:
    tables = [DistinctCounter(max(1024, _IDS_IN_MEMORY // log.tables)) for _ in range(log.tables)]
    read, growth = 0, list[tuple[int, list[int]]]()
    for ids in _parts((batch.ids for batch in log.batches(_BATCH_ROWS)), max_rows):
        for table, column in zip(tables, ids.T, strict=True):
            table.add(column)
        read += len(ids)
        report_progress("counting rows of the log", read, max_rows)
        growth.append((read, [table.seen for table in tables]))
    report = log.report
    if report.broken:
        _LOG.warning(
            "%d of the first %d rows of %s are broken and are skipped. The first: %s",
            report.broken, report.rows, log.path, report.faults[0],
        )  # fmt: skip
    growth = [(at, rows) for at, rows in growth if at in _GROWTH_SAMPLES or at == read]
    growth_by_table = zip(*(rows for _, rows in growth), strict=True)
    id_counts = [table.id_counts() for table in tables]
    return Vocabulary(
        samples_read=read,
        samples=samples,
        exact=read == samples and all(counts.share == 1.0 for counts in id_counts),
        tables=tuple(
            _table(counts, read, samples, rows) for counts, rows in zip(id_counts, growth_by_table, strict=True)
        ),
        growth_samples=tuple(at for at, _ in growth),
    )


def _parts(batches: Iterable[NDArray[np.int64]], max_rows: int) -> Iterator[NDArray[np.int64]]:
    """Yield at most `max_rows` rows in order, cut at each of `_GROWTH_SAMPLES`."""
    read = 0
    for ids in batches:
        ids = ids[: max_rows - read]
        cuts = [samples - read for samples in _GROWTH_SAMPLES if read < samples < read + len(ids)]
        yield from np.split(ids, cuts)
        read += len(ids)
        if read == max_rows:
            return


def _table(ids: IdCounts, read: int, samples: int, growth: tuple[int, ...]) -> TableVocabulary:
    seen, estimate, lower, upper = extrapolate(ids.counts, read, samples, ids.share)
    return TableVocabulary(
        seen=round(seen), estimate=round(estimate), lower=int(lower), upper=int(np.ceil(upper)), growth=growth
    )


def _zero_bits(ids: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
    zero: NDArray[np.bool_] = (mix(ids.astype(np.uint64)) >> np.uint64(64 - bits)) == 0
    return zero
