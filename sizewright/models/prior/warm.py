"""A prior's curve for a job, corrected by what jobs like it have shown since the prior was learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.models.prior.curve import JobCurve
from sizewright.models.residual import matern
from sizewright.models.table import ALLOCATION_AXES, Table, as_columns, known

Floats = NDArray[np.float64]
_AXES = ALLOCATION_AXES[:4]


@dataclass(frozen=True, eq=False, kw_only=True)
class WarmCurve(JobCurve):
    """One whose level was moved, and whose form is drawn to what was seen near an allocation."""

    seen: Floats
    """Where allocations lie (n, a) that were seen: `log_places`."""
    pull: Floats
    """(n,): the logarithm is moved by the kernel to these times it."""

    def log_rates(self, table: Table) -> Floats:
        """Logarithm of samples/s (n,) of allocations; batch, tables and mode as the job has them where not told."""
        return super().log_rates(table) + matern(log_places(table), self.seen) @ self.pull


def log_places(table: Table) -> Floats:
    """Logarithms of replicas and their cores (n, 4); unknown cores are 1."""
    columns = as_columns(table, _AXES)
    return np.column_stack([np.log(np.maximum(known(column, 1.0), 1e-3)) for column in columns.values()])
