"""Iteration time of workers without PS, which exchange their gradients among themselves after every step.

    T_iter = β + α₁·m/λ_w + α₂·(w−1)/w + α₃·(w−1)
    throughput = w·m / T_iter

w workers with λ_w cores, m samples a step of one worker. A ring all-reduce sends 2·(w−1)/w of the gradients over
each link (Patarasu and Yuan 2009) and takes 2·(w−1) messages in a row; where workers share a host, the load of
each worker on the others' cores also grows with their number. Optimus (Peng et al., EuroSys 2018) has the same terms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.models.forms._base import TimeModel
from sizewright.models.table import Table, as_columns, filled


class AllreduceModel(TimeModel):
    """The all-reduce model, fitted by NNLS."""

    name = "allreduce"
    equations = {  # noqa: RUF012
        "beta": "1",
        "compute": "m / λ_w",
        "exchange": "(w - 1) / w",
        "messages": "w - 1",
    }

    def terms(self, table: Table) -> NDArray[np.float64]:
        """Return the terms (n, 4); unknown cores count as 1."""
        columns = as_columns(table)
        workers, cpu = columns["workers"], filled(columns["worker_cpu"], 1.0)
        batch = filled(columns["batch_size"], 1.0)
        return np.column_stack([np.ones_like(workers), batch / cpu, (workers - 1) / workers, workers - 1])
