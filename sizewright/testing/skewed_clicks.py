"""A click log in which one PS gets most of the look-ups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sizewright.spec import Job
from sizewright.training.ps.embedding import TABLE_SHIFT
from sizewright.training.ps.routing import Routing, Server, partition_of


def skewed_log(path: str | Path, job: Job, servers: int, share: float, rows: int, seed: int = 0) -> None:
    """Write `rows` rows in the Criteo format, such that the first of `servers` PS gets `share` of all ids.

    Ids are uniform within the ids of each PS, so that only the partitions differ.
    """
    rng, model = np.random.default_rng(seed), job.model
    owners = Routing.even(tuple(Server(i, ("", 0)) for i in range(servers)), 0).owners
    columns = []
    for table, size in enumerate(model.tables.sizes()):
        ids = np.arange(1, size, dtype=np.int64)  # 0 stands for a missing id
        first = owners[partition_of(ids + (table << TABLE_SHIFT))] == 0
        columns.append(_draw_ids(rng, ids[first], ids[~first], share, rows))
    labels, numbers = rng.integers(0, 2, rows), "\t1" * model.dense_features
    with open(path, "w", encoding="ascii") as log:
        for label, ids_of_row in zip(labels, np.stack(columns, axis=1), strict=True):
            log.write(f"{label}{numbers}\t" + "\t".join(f"{i:08x}" for i in ids_of_row) + "\n")


def _draw_ids(
    rng: np.random.Generator, first: NDArray[np.int64], others: NDArray[np.int64], share: float, rows: int
) -> NDArray[np.int64]:
    return np.where(rng.random(rows) < share, rng.choice(first, rows), rng.choice(others, rows))
