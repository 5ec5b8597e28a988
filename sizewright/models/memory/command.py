"""Memory of replicas that run the user's own code, which is known from the peaks of trials alone.

    PS:     base + total / p        worker: base + m·bytes per sample + L·bytes per loader

Both are fitted to the peaks by NNLS and then raised, so that no measured peak lies above.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sizewright.models.memory.memory_model import MARGIN
from sizewright.models.memory.peaks import MeasuredPeaks, log_errors, plane_over
from sizewright.models.table import Table, as_columns, batch_sizes, filled, successful
from sizewright.spec import Job, Role

Floats = NDArray[np.float64]
# Ratio of the fullest PS to the mean, where nothing is known about how evenly the PS share the tables.
_IMBALANCE = 1.1


@dataclass(frozen=True)
class CommandMemory(MeasuredPeaks):
    """The base and the slopes of each role: by samples and loaders of a worker, and by 1 / p."""

    worker: tuple[float, ...]
    ps: tuple[float, ...]
    measured_ps_sum_bytes: float = 0.0
    loaders: float = 0.0
    """Of a worker, as the job says."""
    log_errors: dict[Role, Floats] = field(default_factory=dict, compare=False)
    """Logarithms of measured over predicted peaks."""

    @classmethod
    def fit(cls, job: Job, trials: Table) -> CommandMemory:
        """Learn from successful trials with memory peaks."""
        names = ("workers", "ps", "batch_size", "loaders", "worker_memory_bytes", "ps_memory_bytes")
        succeeded = successful(trials)
        columns = {name: column[succeeded] for name, column in as_columns(trials, names).items()}
        batch = filled(columns["batch_size"], batch_sizes(job, columns["workers"]))
        loaders = filled(columns["loaders"], float(job.training.loaders))
        with_ps = np.isfinite(columns["ps_memory_bytes"]) & (columns["ps"] >= 1)
        ps_sums = (columns["ps"] * columns["ps_memory_bytes"])[with_ps]
        ps_peaks = np.where(with_ps, columns["ps_memory_bytes"], np.nan)
        model = cls(
            plane_over(columns["worker_memory_bytes"], batch, loaders),
            plane_over(ps_peaks, 1 / np.maximum(columns["ps"], 1)),
            float(ps_sums.max()) if len(ps_sums) else 0.0,
            loaders=float(job.training.loaders),
        )
        return replace(
            model,
            log_errors={
                "worker": log_errors(columns["worker_memory_bytes"], model.worker_bytes(batch, loaders)),
                "ps": log_errors(ps_peaks, model.ps_bytes(columns["ps"], columns["workers"])),
            },
        )

    def known(self, role: Role) -> bool:
        """Return whether a peak of the role was measured."""
        return any(self.worker if role == "worker" else self.ps)

    def worker_bytes(self, batch_size: Floats, loaders: Floats | None = None) -> Floats:
        """Return the peak bytes of a worker (n,), with as many loaders as the job says unless they are given."""
        of_loader = self.worker[2] * (self.loaders if loaders is None else np.where(loaders < 0, self.loaders, loaders))
        return np.asarray(self.worker[0] + self.worker[1] * batch_size + of_loader)

    def ps_bytes(
        self, ps: Floats, workers: Floats, table_scale: Floats | float = 1.0, batch_size: Floats | None = None
    ) -> Floats:
        """Return the peak bytes of a PS (n,); 0 where the allocation has no PS."""
        return np.where(ps > 0, self.ps[0] + self.ps[1] / np.maximum(ps, 1), 0.0)

    def worker_request_bytes(self, batch_size: Floats, loaders: Floats | None = None) -> Floats:
        """Return the bytes to request per worker, with the margin."""
        return self.worker_bytes(batch_size, loaders) * (1 + MARGIN)

    def ps_request_bytes(self, ps: Floats, workers: Floats, batch_size: Floats | None = None) -> Floats:
        """Return the bytes to request per PS: with the margin, and at least its share of the measured sum of peaks."""
        share = np.minimum(1.0, _IMBALANCE / np.maximum(ps, 1))
        needed = self.ps_bytes(ps, workers) * (1 + MARGIN)
        return np.where(ps > 0, np.maximum(needed, self.measured_ps_sum_bytes * share), 0.0)
