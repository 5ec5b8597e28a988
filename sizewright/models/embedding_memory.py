"""Bytes of growing embedding tables to the end of training, per PS, and how likely a memory limit is to be broken.

A PS's share is that of the fullest partition. Rows beyond those that room was reserved for make it copy its arrays
into some of twice the size, and for a moment the old and the new exist. Fresh pages cost nothing until they are
written, so the peak of growing beyond a capacity of C rows is C·(1 + share), where `share` of a row lies in the
larger of the arrays that are copied one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sizewright.errors import InputError
from sizewright.models._base import check_share
from sizewright.models.memory import INDEX_BYTES_PER_ROW, index_bytes, largest_partition, row_bytes, state_floats
from sizewright.models.row_growth import RowGrowth
from sizewright.spec import Job
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]

_LEAST_SD = 0.01
LEAST_ROOM = 1024.0


@dataclass(frozen=True)
class EmbeddingMemory:
    """Bytes of a PS at its peak from the beginning to some number of samples: draws (d,) of what it may be."""

    draws: Floats

    @property
    def value(self) -> float:
        """Median."""
        return float(np.median(self.draws))

    def interval(self, coverage: float = 0.9) -> tuple[float, float]:
        """Between which bytes the peak will lie with this probability."""
        check_share("coverage", coverage)
        low, high = np.quantile(self.draws, [0.5 - coverage / 2, 0.5 + coverage / 2])
        return float(low), float(high)

    def oom_probability(self, limit_bytes: float) -> float:
        """That the peak exceeds a limit: normal in the logarithm of the draws, so that it has a tail."""
        if not limit_bytes > 0:
            raise InputError(f"A limit of {limit_bytes} bytes is none.", "Give a number above 0.")
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
    """Peak of the fullest of `ps` PS after so many samples, from the growth of each table.

    Room for `reserved_rows` was made beforehand, over all PS; beyond, arrays are copied into larger ones.
    """
    if len(tables) != job.model.tables.count:
        raise InputError(
            f"The job has {format_count(job.model.tables.count, 'table')}, and growth was given of {len(tables)}.",
            "Give each once.",
        )
    if not ps >= 1:
        raise InputError(f"{ps} PS hold no tables.", "Give 1 or more.")
    return peak_of(job, np.sum([table.draw(samples) for table in tables], axis=0), ps, base_bytes, reserved_rows)


def peak_of(job: Job, rows: Floats, ps: int, base_bytes: float, reserved_rows: float) -> EmbeddingMemory:
    """Peak of the fullest of `ps` PS where all tables together have grown to so many rows (d,)."""
    fullest = largest_partition(rows, np.array(float(ps)))
    width = job.model.row_width
    state = state_floats(job.model.optimizer.name, width)
    room = max(reserved_rows / ps, LEAST_ROOM)
    held = peak_rows(fullest, room, max(width, state) / (width + state))
    return EmbeddingMemory(base_bytes + held * row_bytes(job) + index_peak_bytes(fullest, room))


def peak_rows(rows: Floats, room: float, share: float = 1.0) -> Floats:
    """Rows' worth of memory at the peak of arrays with room for so many at first, which grew to `rows`."""
    grown = np.ceil(np.log2(np.maximum(rows / room, 1.0)))
    copied = np.where(grown > 0, room * 2.0 ** (grown - 1) * (1 + share), 0.0)
    return np.asarray(np.maximum(rows, copied))


def index_peak_bytes(rows: Floats, room: float) -> Floats:
    """Bytes of the hash index; beyond the first room with half as many places, keys and marks beside the new ones, as
    they were before the last doubling."""
    whole = index_bytes(np.maximum(rows, room)) - INDEX_BYTES_PER_ROW * np.maximum(room - rows, 0.0)
    places = whole - index_bytes(rows / 2)
    return np.asarray(whole + np.where(rows > room, places, 0.0))


def exceeding(draws: Floats, limit: float) -> float:
    """Probability that a quantity with these draws, above 0, exceeds a limit."""
    logs = np.log(draws)
    return float(1 - ndtr((np.log(limit) - logs.mean()) / max(float(logs.std()), _LEAST_SD)))
