"""How many rows a job's tables need: distinct ids counted in the head of its log, and extrapolated to all samples."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from sizewright.datasets.click_fields import mix
from sizewright.datasets.click_logs import ClickLog
from sizewright.datasets.richness import extrapolate
from sizewright.datasets.row_cache import RowCache
from sizewright.datasets.source import open_log
from sizewright.how_far import tell
from sizewright.spec import Job
from sizewright.spec._base import Record, checked_json

_LOG = logging.getLogger(__name__)
_READ_AT_ONCE = 1 << 15
_IDS_IN_MEMORY = 1 << 25
"""Ids held over all tables: at 16 bytes each with their counts, half a GiB at most."""
_MARKS = tuple(int(1000 * 1.5**i) for i in range(40))
"""Samples after which the growth of the tables is noted."""


class TableVocabulary(Record):
    """Distinct ids of one table, the missing one included."""

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
        """The estimate of each table, as `Job.with_rows` takes it."""
        return tuple(table.estimate for table in self.tables)


class Spectrum(NamedTuple):
    """How often the distinct ids of a sample were seen: `counts` of the ids kept, which are a share of all."""

    counts: NDArray[np.int64]
    share: float


class Distinct:
    """Distinct ids of a stream with their counts, at most `capacity` of them.

    When there are more, only ids whose hash begins with another zero bit are kept, with their full counts (adaptive
    sampling: Flajolet, Computing 43, 1990), which leaves a uniform sample of the ids of known share. Its relative
    standard error is about 1.2/√capacity.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._level = 0
        self._ids = np.empty(0, dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)

    def add(self, ids: NDArray[np.int64]) -> None:
        """Count more ids (n,)."""
        new, counts = np.unique(self._kept(ids), return_counts=True)
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
        """Distinct ids so far, as far as those kept tell."""
        return len(self._ids) << self._level

    def spectrum(self) -> Spectrum:
        """Counts of the ids kept, and which share of all distinct ids these are expected to be."""
        return Spectrum(self._counts, 0.5**self._level)

    def _kept(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids[_zero_bits(ids, self._level)] if self._level else ids


def count_rows(job: Job, *, max_rows_read: int = 1_000_000) -> Vocabulary:
    """Read at most `max_rows_read` rows of the job's log and say how many rows each table needs for all its samples.

    The count is exact when as many rows were read as the job has samples; a shorter log is taken as the head of a
    longer one, and `richness.extrapolate` says how the estimates come about. They assume rows in random order: where
    new ids keep arriving with time, more rows are needed. Memory is bounded by the ids held (`Distinct`), 32 million
    over all tables. A log that was counted before and is as it was is not read again (`row_cache`). Raises
    ClickLogError when the job has no log or it cannot be read.
    """
    log, samples = open_log(job), job.samples or 0
    paths = [file.path for file in log.files]
    cache = RowCache(paths, [log.dense_features, log.tables, log.max_broken_share, samples, max_rows_read])
    with suppress(ValidationError):
        return checked_json(Vocabulary, cache.read() or "")
    found = _count(log, samples, min(max_rows_read, samples))
    cache.write(found.model_dump_json())
    return found


def _count(log: ClickLog, samples: int, wanted: int) -> Vocabulary:
    tables = [Distinct(max(1024, _IDS_IN_MEMORY // log.tables)) for _ in range(log.tables)]
    read, growth = 0, list[tuple[int, list[int]]]()
    for ids in _parts((batch.ids for batch in log.batches(_READ_AT_ONCE)), wanted):
        for table, column in zip(tables, ids.T, strict=True):
            table.add(column)
        read += len(ids)
        tell("counting rows of the log", read, wanted)
        growth.append((read, [table.seen for table in tables]))
    if log.report.broken:
        _LOG.warning(
            "%d of the first %d rows of %s are broken and left out; the first: %s",
            log.report.broken, log.report.rows, log.path, log.report.faults[0],
        )  # fmt: skip
    growth = [(at, rows) for at, rows in growth if at in _MARKS or at == read]
    spectra = [table.spectrum() for table in tables]
    exact = read == samples and all(spectrum.share == 1.0 for spectrum in spectra)
    return Vocabulary(
        samples_read=read,
        samples=samples,
        exact=exact,
        tables=tuple(
            _table(spectrum, read, samples, grown)
            for spectrum, grown in zip(spectra, zip(*(rows for _, rows in growth), strict=True), strict=True)
        ),
        growth_samples=tuple(at for at, _ in growth),
    )


def _parts(batches: Iterable[NDArray[np.int64]], wanted: int) -> Iterator[NDArray[np.int64]]:
    """Rows in order, `wanted` at most, cut at every mark."""
    read = 0
    for ids in batches:
        ids = ids[: wanted - read]
        cuts = [mark - read for mark in _MARKS if read < mark < read + len(ids)]
        yield from np.split(ids, cuts)
        read += len(ids)
        if read == wanted:
            return


def _table(spectrum: Spectrum, read: int, samples: int, growth: tuple[int, ...]) -> TableVocabulary:
    seen, estimate, lower, upper = extrapolate(spectrum.counts, read, samples, spectrum.share)
    return TableVocabulary(
        seen=round(seen), estimate=round(estimate), lower=int(lower), upper=int(np.ceil(upper)), growth=growth
    )


def _zero_bits(ids: NDArray[np.int64], bits: int) -> NDArray[np.bool_]:
    zero: NDArray[np.bool_] = (mix(ids.astype(np.uint64)) >> np.uint64(64 - bits)) == 0
    return zero
