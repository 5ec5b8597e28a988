"""Optimus's speed models (Peng et al., EuroSys 2018, section 3.2), on step time by NNLS.

    async: throughput = w·m / (a + b·w/p + c·w + d·p)
    sync:  throughput = M / (a·M/w + b + c·w/p + d·w + e·p), with M = w·m samples a step of all workers

The same terms serve both where a column for m is there; M/w is m, which is constant in async jobs. Cores are not part
of the form: here they divide what is computed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.models.forms._base import TimeModel
from sizewright.models.table import Table, as_columns, filled


class OptimusModel(TimeModel):
    """Optimus's model, fitted by NNLS."""

    name = "optimus"
    equations = {  # noqa: RUF012
        "constant": "1",
        "compute": "m / λ_w",
        "exchange": "w / p",
        "workers": "w",
        "servers": "p",
    }

    def terms(self, table: Table) -> NDArray[np.float64]:
        """Return the terms (n, 5); unknown cores and batch sizes count as 1."""
        columns = as_columns(table)
        workers, ps = columns["workers"], np.maximum(columns["ps"], 1)
        compute = filled(columns["batch_size"], 1.0) / filled(columns["worker_cpu"], 1.0)
        return np.column_stack([np.ones_like(workers), compute, workers / ps, workers, ps])
