"""Every allocation inside the bounds, as columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.models.table import Columns
from sizewright.spec import Allocation, Bounds

Floats = NDArray[np.float64]

_STEPS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_MOST_SIZES = 16
_MOST_COUNTS = 64
_MOST_ROWS = 2_000_000  # beyond that, replicas are thinned further


@dataclass(frozen=True)
class Grid:
    """Columns (n,) of allocations: replicas, cores of one replica, batch size per worker."""

    workers: Floats
    ps: Floats
    worker_cpu: Floats
    ps_cpu: Floats
    batch_size: Floats

    def __len__(self) -> int:
        return len(self.workers)

    def columns(self, embedding_bytes: float) -> Columns:
        """As a model takes them, with the tables of the job."""
        return vars(self) | {"embedding_bytes": np.full(len(self), float(embedding_bytes))}

    def allocation(self, i: int, worker_memory_bytes: float = 0.0, ps_memory_bytes: float = 0.0) -> Allocation:
        """One row as an allocation."""
        return Allocation.of(
            int(self.workers[i]),
            int(self.ps[i]),
            float(self.worker_cpu[i]),
            float(self.ps_cpu[i]),
            int(self.batch_size[i]),
            int(worker_memory_bytes),
            int(ps_memory_bytes),
        )


def make_grid(bounds: Bounds, batch_size: int, *, has_ps: bool = True) -> Grid:
    """All combinations of replicas, cores in even steps, and batch sizes in powers of two; without PS 0 of 1 core."""
    sizes = [
        sizes_between(*bounds.worker.cpu),
        sizes_between(*bounds.ps.cpu) if has_ps else [1.0],
        _doublings(*bounds.batch_size) if bounds.batch_size else [float(batch_size)],
    ]
    most = _MOST_COUNTS
    while True:
        counts = [counts_between(*bounds.worker.replicas, most)]
        counts.append(counts_between(*bounds.ps.replicas, most) if has_ps else [0.0])
        if math.prod(map(len, (*counts, *sizes))) <= _MOST_ROWS or most <= 8:
            break
        most //= 2
    return Grid(*(column.ravel() for column in np.meshgrid(*counts, *sizes, indexing="ij")))


def counts_between(low: int, high: int, most: int = _MOST_COUNTS) -> list[float]:
    """Whole numbers; all of them up to `most`, beyond that so many in even ratios."""
    if high - low < most:
        return [float(count) for count in range(low, high + 1)]
    return sorted({float(round(count)) for count in np.geomspace(low, high, most)})


def sizes_between(low: float, high: float) -> list[float]:
    """Cores in the finest even step that needs at most 16 sizes; both ends are among them."""
    step = next((s for s in _STEPS if (high - low) / s <= _MOST_SIZES - 1), (high - low) / (_MOST_SIZES - 1))
    if not step:
        return [low]
    inner = np.arange(np.ceil(low / step + 1e-9) * step, high - 1e-9, step)
    return sorted({low, high, *(round(float(size), 6) for size in inner)})


def _doublings(low: int, high: int) -> list[float]:
    sizes = [float(low)]
    while sizes[-1] * 2 <= high:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == high else [*sizes, float(high)]
