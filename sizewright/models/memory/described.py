"""Memory that the described tables of a command need: a floor where nothing was measured.

    PS:     base + (tables + dense·4·(1 + state of one)) / p
    worker: base + dense·12 + bytes of a batch, and tables / w where there are no PS

`tables` are the bytes of all rows with their optimizer state, which the replicas share evenly, and without an index.
Where workers compute on GPUs and there are no PS, the tables lie in the memory of the GPUs. The other terms are those
of `memory_model`. `base` is the largest excess of a measured peak, or that of a process of the built-in engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.models.memory.memory_model import (
    DEFAULT_BASES,
    MARGIN,
    MemoryModel,
    dense_floats,
    largest_excess,
    state_floats,
    table_bytes,
)
from sizewright.models.table import Table, as_columns, batch_sizes, filled, successful
from sizewright.spec import Job

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DescribedMemory:
    """Memory that is counted from the description beside a command, plus one constant per role."""

    job: Job
    ps_base_bytes: float = DEFAULT_BASES.ps
    worker_base_bytes: float = DEFAULT_BASES.worker
    trials: int = 0
    """Number of trials with measured peaks."""

    @classmethod
    def fit(cls, job: Job, trials: Table) -> DescribedMemory:
        """Learn the constants from successful trials with memory peaks; without any they are those of the engine."""
        names = ("workers", "ps", "batch_size", "worker_memory_bytes", "ps_memory_bytes")
        succeeded = successful(trials)
        columns = {name: column[succeeded] for name, column in as_columns(trials, names).items()}
        workers, ps = columns["workers"], np.maximum(columns["ps"], 1)
        batch = filled(columns["batch_size"], batch_sizes(job, workers))
        counted = cls(job, 0.0, 0.0)
        ps_peaks = np.where(columns["ps"] >= 1, columns["ps_memory_bytes"], np.nan)
        worker_peaks = columns["worker_memory_bytes"]
        return cls(
            job,
            ps_base_bytes=largest_excess(ps_peaks - counted.ps_bytes(ps), DEFAULT_BASES.ps),
            worker_base_bytes=largest_excess(worker_peaks - counted.worker_bytes(batch, workers), DEFAULT_BASES.worker),
            trials=int((np.isfinite(ps_peaks) | np.isfinite(worker_peaks)).sum()),
        )

    @property
    def tables_on_workers(self) -> bool:
        """Return whether the memory of a worker's host holds its share of the tables."""
        return not self.job.has_ps and self.job.training.device == "cpu"

    def ps_bytes(self, ps: Floats) -> Floats:
        """Return the bytes of one of `ps` PS (n,)."""
        state = state_floats(self.job.model.optimizer.name, 1)
        shared = table_bytes(self.job) + 4 * (1 + state) * dense_floats(self.job)
        return np.asarray(self.ps_base_bytes + shared / ps)

    def worker_bytes(self, batch_size: Floats, workers: Floats) -> Floats:
        """Return the bytes of one of `workers` workers (n,)."""
        network = MemoryModel(self.job, worker_base_bytes=self.worker_base_bytes).worker_bytes(batch_size)
        return np.asarray(network + (self.worker_table_bytes(workers) if self.tables_on_workers else 0.0))

    def worker_table_bytes(self, workers: Floats) -> Floats:
        """Return the bytes of the tables on one of `workers` workers (n,), on its GPUs if it has such; 0 with PS."""
        return np.zeros_like(workers) if self.job.has_ps else table_bytes(self.job) / workers

    def ps_request_bytes(self, ps: Floats, workers: Floats) -> Floats:
        """Return the bytes to request per PS, with the margin."""
        return self.ps_bytes(ps) * (1 + MARGIN)

    def worker_request_bytes(self, batch_size: Floats, workers: Floats) -> Floats:
        """Return the bytes to request per worker, with the margin."""
        return self.worker_bytes(batch_size, workers) * (1 + MARGIN)
