"""Memory of a GPU: what batches and the network take, and its share of the tables.

    base + m·samples of its ranks + (tables + t) / GPUs of all workers

`tables` are the bytes of the tables that are described beside a command without PS, which the GPUs share evenly; 0
without a description. `base`, `m` and `t` are fitted by NNLS to the peaks that trials measured beyond that, and raised
so that no peak lies above. Without a measured peak only the described tables are known, which are the least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.models.memory.memory_model import table_bytes
from sizewright.models.memory.peaks import plane_over
from sizewright.models.table import Table, as_columns, batch_sizes, filled, successful
from sizewright.spec import HostKind, Job

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one GPU of a worker, in bytes, for columns (n,) of workers, GPUs of one worker and batch sizes."""

    job: Job
    described_bytes: float = 0.0
    """Of all tables, where they are described and lie on GPUs."""
    base: float = 0.0
    per_sample: float = 0.0
    measured_bytes: float = 0.0
    """What the GPUs share beyond the described tables."""
    trials: int = 0
    """Number of trials with a measured peak of a GPU."""

    @classmethod
    def fit(cls, job: Job, trials: Table) -> DeviceMemory:
        """Learn from successful trials with a peak of a GPU. Raises InputError for a table that cannot be used."""
        on_gpus = job.command and job.describes_tables and not job.has_ps and job.training.device != "cpu"
        described = float(table_bytes(job)) if on_gpus else 0.0
        names = ("workers", "worker_gpu", "batch_size", "device_memory_bytes")
        succeeded = successful(trials) if len(trials) else np.zeros(0, bool)
        columns = {name: column[succeeded] for name, column in as_columns(trials, names).items()}
        workers, gpus = columns["workers"], np.maximum(filled(columns["worker_gpu"], 1.0), 1.0)
        samples = _samples_of_gpu(job, gpus, filled(columns["batch_size"], batch_sizes(job, workers)))
        peaks = columns["device_memory_bytes"]
        beyond = np.maximum(peaks - described / (workers * gpus), 0.0)
        base, per_sample, shared = plane_over(beyond, samples, 1 / (workers * gpus))
        return cls(job, described, base, per_sample, shared, int(np.isfinite(peaks).sum()))

    @property
    def known(self) -> bool:
        """Return whether trials measured a peak, or tables on GPUs are described."""
        return bool(self.trials or self.described_bytes)

    def gpu_bytes(self, workers: Floats, worker_gpu: Floats, batch_size: Floats) -> Floats:
        """Return the peak of one GPU (n,); workers without a number of GPUs have one."""
        gpus = np.maximum(worker_gpu, 1.0)
        shared = (self.described_bytes + self.measured_bytes) / (workers * gpus)
        return np.asarray(self.base + self.per_sample * _samples_of_gpu(self.job, gpus, batch_size) + shared)

    def bytes_on(self, host: HostKind, workers: Floats, worker_gpu: Floats, batch_size: Floats) -> Floats:
        """Return the peak of one GPU (n,), if the workers lie on such hosts; 0 for workers without GPUs.

        Where neither bounds nor trials name GPUs, a worker that computes on them has all of its host.
        """
        unnamed = self.job.training.device != "cpu" and not self.job.bounds.worker.gpu
        gpus = np.where(worker_gpu == 0, float(self.job.gpus_on(host)) if unnamed else 0.0, worker_gpu)
        return np.where(gpus > 0, self.gpu_bytes(workers, gpus, batch_size), 0.0)

    def fits(self, host: HostKind, workers: Floats, worker_gpu: Floats, batch_size: Floats) -> Mask:
        """Return whether the GPUs of a host hold what a worker on it needs (n,); True where their memory is unknown."""
        if host.gpu_memory_bytes is None:
            return np.ones(len(workers), bool)
        return np.asarray(self.bytes_on(host, workers, worker_gpu, batch_size) <= host.gpu_memory_bytes)


def _samples_of_gpu(job: Job, gpus: Floats, batch_size: Floats) -> Floats:
    """Return the samples of a step that one GPU of so many computes: the batch of a rank, or of all that share it."""
    processes = job.command.processes if job.command else 1
    ranks = gpus if processes == "gpu" else float(processes)
    return np.asarray(batch_size * np.maximum(1.0, ranks / gpus))
