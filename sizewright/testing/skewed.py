"""A click log whose look-ups one PS gets most of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sizewright.spec import Job
from sizewright.training.embedding import TABLE_SHIFT
from sizewright.training.routing import Routing, Server, partition_of


def skewed_log(path: str | Path, job: Job, servers: int, share: float, rows: int, seed: int = 0) -> None:
    """Write so many rows in the Criteo format: of `servers` PS the first gets `share` of all ids.

    Ids are spread evenly over what each part of a table has of them, so that only their partitions differ.
    """
    rng, model = np.random.default_rng(seed), job.model
    owners = Routing.even(tuple(Server(i, ("", 0)) for i in range(servers)), 0).owners
    columns = []
    for table, size in enumerate(model.tables.sizes()):
        ids = np.arange(1, size, dtype=np.int64)  # 0 would be a missing one
        first = owners[partition_of(ids + (table << TABLE_SHIFT))] == 0
        columns.append(_drawn(rng, ids[first], ids[~first], share, rows))
    labels, numbers = rng.integers(0, 2, rows), "\t1" * model.dense_features
    with open(path, "w", encoding="ascii") as log:
        for label, ids_of_row in zip(labels, np.stack(columns, axis=1), strict=True):
            log.write(f"{label}{numbers}\t" + "\t".join(f"{i:08x}" for i in ids_of_row) + "\n")


def _drawn(
    rng: np.random.Generator, first: NDArray[np.int64], others: NDArray[np.int64], share: float, rows: int
) -> NDArray[np.int64]:
    return np.where(rng.random(rows) < share, rng.choice(first, rows), rng.choice(others, rows))
