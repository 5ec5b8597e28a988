"""Endless batches of a job's samples, as workers read them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.logs import ClickLog
from sizewright.datasets.clicks.synthetic import SyntheticLog
from sizewright.errors import ClickLogError
from sizewright.spec import Job
from sizewright.spec.model import Tables


def open_source(
    job: Job,
    *,
    scale: float = 1.0,
    shard: tuple[int, int] = (0, 1),
    seed: int = 0,
    batch_size: int | None = None,
) -> Iterator[Batch]:
    """Return endless batches of the job's data, its ids folded into the tables (the hashing trick: id % rows).

    The rows of each table are multiplied by `scale`. `shard` (i, n) gives worker i of n its part. `seed` is the seed of
    synthetic data. Raises ClickLogError when the log cannot be read, its columns do not match the model, or the tables'
    rows are not counted yet.
    """
    tables = job.model.tables
    if not tables.known:
        raise ClickLogError(
            "The rows of this job's tables are not counted yet.",
            "Count them with count_rows(job), or list them as model.tables.rows.",
        )
    size = batch_size or job.training.batch_size
    if job.data.format == "synthetic":
        return fold(synthetic_log(job, seed).batches(size, shard=shard), column_rows(tables, scale))
    return fold(open_log(job).batches(size, shard=shard, repeat=True), column_rows(tables, scale))


def synthetic_log(job: Job, seed: int = 0) -> SyntheticLog:
    """Return the synthetic log of a job."""
    tables = job.model.tables
    return SyntheticLog(
        tables.sizes(),
        dense_features=job.model.dense_features,
        zipf=job.data.zipf,
        seed=seed,
        pooling=tuple(map(int, tables.poolings)),
    )


def column_rows(tables: Tables, scale: float) -> tuple[int, ...]:
    """Return the rows, times `scale`, of the table of each column of ids."""
    sizes = tables.sizes(scale)
    return tuple(sizes[table] for table in tables.id_columns)


def open_log(job: Job) -> ClickLog:
    """Open the job's click log. Raises ClickLogError when it has none, or its columns do not match the model."""
    if job.data.path is None:
        raise ClickLogError("This job's data is synthetic, so it has no log.", "Set data.format: criteo and data.path.")
    return ClickLog(
        job.data.path,
        dense_features=job.model.dense_features,
        tables=job.model.tables.count,
        max_broken_share=job.data.max_broken_share,
    )


def fold(batches: Iterator[Batch], rows: tuple[int, ...]) -> Iterator[Batch]:
    """Yield the same batches with ids % rows, column by column."""
    sizes = np.array(rows, dtype=np.int64)
    for batch in batches:
        beyond = (batch.ids >= sizes).any()
        yield batch._replace(ids=batch.ids % sizes) if beyond else batch
