"""DLRover-RM's resource-performance model (Wang et al., VLDB 2024), on iteration time by NNLS.

    T_iter = β + α₁·m/λ_w + α₂·w/(p·λ_p) + α₃·w/p + α₄·m·D/p + α₅·m·log₂(1 + S/(p·1 MiB))/(p·λ_p)
    throughput = w·m / T_iter

w workers and p PS with λ_w and λ_p cores, m samples a step of one worker, D embedding dimension (a
constant of the job, so it is left in the coefficient), S bytes of embeddings. The first five terms
are a reconstruction of the published form from the paper's text. The last is ours: look-ups
slow down as tables outgrow the caches and as a batch has more distinct rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.formatting import MIB
from sizewright.models.forms._base import TimeModel
from sizewright.models.table import Table, as_columns, filled

EQUATIONS = {
    "beta": "1",
    "compute": "m / λ_w",
    "update": "w / (p · λ_p)",
    "synchronisation": "w / p",
    "look_up": "m · D / p",
    "table_size": "m · log2(1 + S / (p · 1 MiB)) / (p · λ_p)",
}


def dlrover_terms(table: Table) -> NDArray[np.float64]:
    """Return the terms (n, 6) of a table; unknown cores count as 1, unknown tables as 0 bytes."""
    columns = as_columns(table)
    workers, ps = columns["workers"], columns["ps"]
    worker_cpu, ps_cpu = filled(columns["worker_cpu"], 1.0), filled(columns["ps_cpu"], 1.0)
    batch, size = filled(columns["batch_size"], 1.0), filled(columns["embedding_bytes"], 0.0)
    return np.column_stack(
        [
            np.ones_like(workers),
            batch / worker_cpu,
            workers / (ps * ps_cpu),
            workers / ps,
            batch / ps,
            batch * np.log2(1 + size / (ps * MIB)) / (ps * ps_cpu),
        ]
    )


class DlroverModel(TimeModel):
    """DLRover-RM's model, fitted by NNLS."""

    name = "dlrover"
    equations = EQUATIONS

    def terms(self, table: Table) -> NDArray[np.float64]:  # noqa: D102
        return dlrover_terms(table)

    def takes(self, columns: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        """Return which trials (n,) have workers and PS."""
        return np.asarray((columns["workers"] >= 1) & (columns["ps"] >= 1))
