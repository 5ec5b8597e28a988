"""Memory of growing embedding tables per PS, and the probability that it exceeds a limit before training ends.

The forecast is that of the fullest partition. When its rows exceed the reserved capacity, a PS copies its arrays into
arrays of twice the size, and for a moment both exist. Fresh pages cost nothing until they are written, so the peak of
growing beyond a capacity of C rows is C·(1 + share). `share` is the part of a row that lies in the larger of the
arrays, which are copied one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sizewright.errors import InputError
from sizewright.formatting import format_count
from sizewright.models._base import check_share
from sizewright.models.memory.memory_model import (
    INDEX_BYTES_PER_ROW,
    group_rows,
    index_bytes,
    largest_partition,
    row_parts,
)
from sizewright.models.memory.row_growth import RowGrowth
from sizewright.spec import Job

Floats = NDArray[np.float64]

_MIN_SD = 0.01
MIN_CAPACITY = 1024.0


@dataclass(frozen=True)
class EmbeddingMemory:
    """Draws (d,) of the peak bytes of a PS up to some number of samples."""

    draws: Floats

    @property
    def value(self) -> float:
        """The median."""
        return float(np.median(self.draws))

    def interval(self, coverage: float = 0.9) -> tuple[float, float]:
        """Return the interval in bytes that holds the peak with probability `coverage`."""
        check_share("coverage", coverage)
        low, high = np.quantile(self.draws, [0.5 - coverage / 2, 0.5 + coverage / 2])
        return float(low), float(high)

    def oom_probability(self, limit_bytes: float) -> float:
        """Return the probability that the peak exceeds a limit.

        The logarithm of the peak counts as normal, so that the distribution has a tail beyond the draws.
        """
        if not limit_bytes > 0:
            raise InputError(f"limit_bytes must be above 0, got {limit_bytes}.", "Give the memory limit in bytes.")
        return exceeding(self.draws, limit_bytes)


def forecast(
    job: Job,
    tables: Sequence[RowGrowth],
    samples: float,
    ps: int,
    *,
    base_bytes: float = 0.0,
    reserved_rows: float = 0.0,
) -> EmbeddingMemory:
    """Return the peak of the fullest of `ps` PS after `samples`, from the growth of each table.

    Capacity for `reserved_rows` over all PS is allocated beforehand; beyond it, arrays are copied into larger ones.
    Raises InputError for a wrong number of tables, or without PS.
    """
    if len(tables) != job.model.tables.count:
        raise InputError(
            f"The job has {format_count(job.model.tables.count, 'table')}, got the growth of {len(tables)}.",
            "Give one RowGrowth for each table.",
        )
    if not ps >= 1:
        raise InputError(f"ps must be 1 or more, got {ps}.", "Give the number of PS.")
    return peak_of(job, drawn_rows(job, tables, samples), ps, base_bytes, reserved_rows)


def drawn_rows(job: Job, tables: Sequence[RowGrowth], samples: float) -> list[Floats]:
    """Return draws (d,) of the rows after `samples` of the tables of each group, from the growth of each table."""
    draws = [table.draw(samples) for table in tables]
    return [np.sum([draws[i] for i in group.tables], axis=0) for group in job.model.table_groups]


def shared_by_width(job: Job, rows: Floats) -> list[Floats]:
    """Return the rows (d,) of the tables of each group, where only those of all tables together are known.

    They are shared out as the rows of the job's tables are.
    """
    groups = group_rows(job)
    total = sum(group.rows for group in groups)
    return [rows * (group.rows / total) for group in groups]


def peak_of(job: Job, rows: Sequence[Floats], ps: int, base_bytes: float, reserved_rows: float) -> EmbeddingMemory:
    """Return the peak of the fullest of `ps` PS when the tables of each group have `rows` rows, arrays (d,).

    Arrays of all groups count as if they were copied at the same time. Reserved rows are shared out as by
    `shared_by_width`.
    """
    reserved = shared_by_width(job, np.array(reserved_rows))
    draws: Floats = np.full(1, base_bytes)
    each = row_parts(job)
    for group, size, of_group, capacity in zip(job.model.table_groups, group_rows(job), rows, reserved, strict=True):
        fullest = largest_partition(of_group, np.array(float(ps)))
        row = each[group.tables[0]]
        at_first = max(float(capacity) / ps, MIN_CAPACITY)
        peak = peak_rows(fullest, at_first, max(row) / sum(row))
        draws = draws + (peak * size.bytes_each + index_peak_bytes(fullest, at_first))
    return EmbeddingMemory(draws)


def peak_rows(rows: Floats, capacity: float, share: float = 1.0) -> Floats:
    """Return the peak of arrays that grew from `capacity` to `rows` rows (d,), in rows."""
    doublings = np.ceil(np.log2(np.maximum(rows / capacity, 1.0)))
    copying = np.where(doublings > 0, capacity * 2.0 ** (doublings - 1) * (1 + share), 0.0)
    return np.asarray(np.maximum(rows, copying))


def index_peak_bytes(rows: Floats, capacity: float) -> Floats:
    """Return the peak bytes of the hash index.

    Beyond the first capacity it includes the index of half the size from before the last doubling.
    """
    index = index_bytes(np.maximum(rows, capacity)) - INDEX_BYTES_PER_ROW * np.maximum(capacity - rows, 0.0)
    old_index = index - index_bytes(rows / 2)
    return np.asarray(index + np.where(rows > capacity, old_index, 0.0))


def exceeding(draws: Floats, limit: float) -> float:
    """Return the probability that a positive quantity with these draws exceeds a limit."""
    logs = np.log(draws)
    return float(1 - ndtr((np.log(limit) - logs.mean()) / max(float(logs.std()), _MIN_SD)))
