"""Ernest's model (Venkataraman et al., NSDI 2016): seconds for a fixed amount of data on n machines, by NNLS.

    time = θ0 + θ1·1/n + θ2·log(1 + n) + θ3·n

Here a machine is a worker's core, and the amount of data one sample, so that time is 1/throughput.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.models.forms._base import TimeModel
from sizewright.models.table import Table, as_columns, filled


class ErnestModel(TimeModel):
    """Ernest's model, fitted by NNLS."""

    name = "ernest"
    equations = {"constant": "1", "parallel": "1 / n", "tree": "log(1 + n)", "all": "n"}  # noqa: RUF012

    def terms(self, table: Table) -> NDArray[np.float64]:
        """Return the terms (n, 4), times the samples of a step of all workers; unknown cores count as 1."""
        columns = as_columns(table)
        machines = columns["workers"] * filled(columns["worker_cpu"], 1.0)
        samples = columns["workers"] * filled(columns["batch_size"], 1.0)
        terms = np.column_stack([np.ones_like(machines), 1 / machines, np.log1p(machines), machines])
        return terms * samples[:, None]
