"""The samples of a job, endless, as workers take them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sizewright.datasets.batch import Batch
from sizewright.datasets.click_logs import ClickLog
from sizewright.datasets.synthetic import SyntheticLog
from sizewright.errors import ClickLogError
from sizewright.spec import Job


def open_source(
    job: Job,
    *,
    scale: float = 1.0,
    shard: tuple[int, int] = (0, 1),
    seed: int = 0,
    batch_size: int | None = None,
) -> Iterator[Batch]:
    """Endless batches of the job's data, ids folded into its tables' rows times `scale` (the hashing trick: id % rows).

    `shard` (i, n) gives worker i of n its part. `seed` is that of synthetic data. Raises ClickLogError when the log
    cannot be read, its columns are not those of the model, or the tables' rows are still to be counted.
    """
    tables = job.model.tables
    if not tables.known:
        raise ClickLogError(
            "The rows of this job's tables are still to be counted in its data.",
            "Count them with count_rows(job), or list them as model.tables.rows.",
        )
    size = batch_size or job.training.batch_size
    if job.data.format == "synthetic":
        log = SyntheticLog(tables.sizes(), dense_features=job.model.dense_features, zipf=job.data.zipf, seed=seed)
        return fold(log.batches(size, shard=shard), tables.sizes(scale))
    return fold(open_log(job).batches(size, shard=shard, repeat=True), tables.sizes(scale))


def open_log(job: Job) -> ClickLog:
    """The job's click log. Raises ClickLogError when it has none, or one of other columns than its model."""
    if job.data.path is None:
        raise ClickLogError("This job's data is synthetic: it has no log.", "Set data.format: criteo and data.path.")
    return ClickLog(
        job.data.path,
        dense_features=job.model.dense_features,
        tables=job.model.tables.count,
        max_broken_share=job.data.max_broken_share,
    )


def fold(batches: Iterator[Batch], rows: tuple[int, ...]) -> Iterator[Batch]:
    """The same batches with ids % rows, table by table."""
    sizes = np.array(rows, dtype=np.int64)
    for batch in batches:
        beyond = (batch.ids >= sizes).any()
        yield batch._replace(ids=batch.ids % sizes) if beyond else batch
