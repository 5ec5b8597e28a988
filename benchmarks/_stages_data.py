"""Samples with skew: from some point of the run on, one of three PS has 55 % of the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.samples import SampleSource
from sizewright.spec import Job
from sizewright.training.program import BuiltIn
from sizewright.training.ps.embedding import TABLE_SHIFT
from sizewright.training.ps.routing import Routing, Server, partition_of

SHAPE = Path(__file__).parent / "stages.yaml"
SERVERS = 3
SHARE = 0.79
"""Share of ids that move to the first PS: 77 % of the distinct ids of a batch of 2,048, which are looked up."""
_MIN_ROWS = 64


class SkewedLater(BuiltIn):
    """The built-in program, with other ids from sample `begin` on: equally popular, but in other partitions."""

    def __init__(self, begin: int) -> None:
        super().__init__()
        self._begin = begin

    def samples(self, job: Job, scale: float) -> SampleSource:
        return _Skewed(super().samples(job, scale), job, self._begin)


class _Skewed:
    def __init__(self, source: SampleSource, job: Job, begin: int) -> None:
        self._source, self._begin = source, begin
        owners = Routing.even(tuple(Server(i, ("", 0)) for i in range(SERVERS)), 0).owners
        self._ids = [_moved(table, size, owners) for table, size in enumerate(job.model.tables.sizes())]

    def read(self, start: int, count: int) -> Batch:
        batch = self._source.read(start, count)
        if start < self._begin:
            return batch
        ids = np.stack([moved[column] for moved, column in zip(self._ids, batch.ids.T, strict=True)], axis=1)
        return batch._replace(ids=np.ascontiguousarray(ids.astype(batch.ids.dtype)))


def _moved(table: int, size: int, owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the new id of each id of a table."""
    ids = np.arange(size, dtype=np.int64)
    if size < _MIN_ROWS:
        return ids
    rng = np.random.default_rng(table)
    first = owners[partition_of(ids + (table << TABLE_SHIFT))] == 0
    first_ids, other_ids = ids[first], ids[~first]
    to_first = rng.random(size) < SHARE
    rank = np.arange(size)
    moved: NDArray[np.int64] = np.where(to_first, first_ids[rank % len(first_ids)], other_ids[rank % len(other_ids)])
    return moved
