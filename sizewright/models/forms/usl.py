"""The universal scalability law (Gunther 2007), which has Amdahl's (1967) in it, over the workers' cores, by NNLS.

    throughput = λ·N / (1 + σ·(N − 1) + κ·N·(N − 1)),  so  1/throughput = a/N + b + c·N

with a = (1 − σ)/λ, b = (σ − κ)/λ and c = κ/λ: N cores, λ samples/s of one, contention σ, coherence κ; without c it is
Amdahl's law. Since b is not negative, κ is never above σ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.models.forms._base import TimeModel
from sizewright.models.table import Table, as_columns, filled


class UslModel(TimeModel):
    """The USL, fitted by NNLS."""

    name = "usl"
    equations = {"parallel": "1 / N", "serial": "1", "coherence": "N"}  # noqa: RUF012

    def terms(self, table: Table) -> NDArray[np.float64]:
        """Return the terms (n, 3), times the samples of a step of all workers; unknown cores count as 1."""
        columns = as_columns(table)
        cores = columns["workers"] * filled(columns["worker_cpu"], 1.0)
        samples = columns["workers"] * filled(columns["batch_size"], 1.0)
        return np.column_stack([1 / cores, np.ones_like(cores), cores]) * samples[:, None]
