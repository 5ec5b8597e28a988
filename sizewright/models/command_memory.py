"""Bytes of the replicas of the user's own code: nothing is known of it but the peaks that its trials had.

    PS:     base + total / p        worker: base + m·bytes per sample

Both lines are laid over the peaks by NNLS and then lifted, so that no measured peak lies above.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sizewright.models.memory import MARGIN
from sizewright.models.peaks import line_over, log_errors, oom_probability
from sizewright.models.table import Table, as_columns, ended_well, known
from sizewright.spec import Job, Role

Floats = NDArray[np.float64]
# Of the tables on a PS before anything is known of how evenly they are spread.
_UNEVEN = 1.1


@dataclass(frozen=True)
class CommandMemory:
    """Two numbers a role."""

    worker: tuple[float, float]
    ps: tuple[float, float]
    measured_ps_sum_bytes: float = 0.0
    log_errors: dict[Role, Floats] = field(default_factory=dict, compare=False)
    """Of measured over predicted peaks."""

    @classmethod
    def fit(cls, job: Job, trials: Table) -> CommandMemory:
        """Learn from trials that ended well and carry memory peaks."""
        names = ("workers", "ps", "batch_size", "worker_memory_bytes", "ps_memory_bytes")
        well = ended_well(trials)
        columns = {name: column[well] for name, column in as_columns(trials, names).items()}
        batch = known(columns["batch_size"], job.training.batch_size)
        servers = np.isfinite(columns["ps_memory_bytes"]) & (columns["ps"] >= 1)
        peaks = (columns["ps"] * columns["ps_memory_bytes"])[servers]
        ps_peaks = np.where(servers, columns["ps_memory_bytes"], np.nan)
        learned = cls(
            line_over(batch, columns["worker_memory_bytes"]),
            line_over(1 / np.maximum(columns["ps"], 1), ps_peaks),
            float(peaks.max()) if len(peaks) else 0.0,
        )
        return replace(
            learned,
            log_errors={
                "worker": log_errors(columns["worker_memory_bytes"], learned.worker_bytes(batch)),
                "ps": log_errors(ps_peaks, learned.ps_bytes(columns["ps"], columns["workers"])),
            },
        )

    def known(self, role: Role) -> bool:
        """Return whether a trial or run told a peak of the role."""
        return any(self.worker if role == "worker" else self.ps)

    def worker_bytes(self, batch_size: Floats) -> Floats:
        """Peak bytes of a worker (n,)."""
        return self.worker[0] + self.worker[1] * batch_size

    def ps_bytes(
        self, ps: Floats, workers: Floats, table_scale: Floats | float = 1.0, batch_size: Floats | None = None
    ) -> Floats:
        """Peak bytes of a PS (n,); 0 where there is none."""
        return np.where(ps > 0, self.ps[0] + self.ps[1] / np.maximum(ps, 1), 0.0)

    def worker_request_bytes(self, batch_size: Floats) -> Floats:
        """What to ask for per worker, margin included."""
        return self.worker_bytes(batch_size) * (1 + MARGIN)

    def ps_request_bytes(self, ps: Floats, workers: Floats, batch_size: Floats | None = None) -> Floats:
        """What to ask for per PS: the margin on top, and never below the measured sum of peaks × its share."""
        share = np.minimum(1.0, _UNEVEN / np.maximum(ps, 1))
        wanted = self.ps_bytes(ps, workers) * (1 + MARGIN)
        return np.where(ps > 0, np.maximum(wanted, self.measured_ps_sum_bytes * share), 0.0)

    def oom_probability(self, role: Role, limit_bytes: float, predicted_bytes: float) -> float:
        """That a replica of the role, predicted to peak at so many bytes, breaks its limit."""
        return oom_probability(limit_bytes, predicted_bytes, self.log_errors.get(role, np.empty(0)))
