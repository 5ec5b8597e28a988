"""DLRover-RM's resource-performance model (Wang et al., VLDB 2024), on iteration time by NNLS.

    T_iter = β + α₁·m/λ_w + α₂·w/(p·λ_p) + α₃·w/p + α₄·m·D/p + α₅·m·log₂(1 + S/(p·1 MiB))/(p·λ_p)
    throughput = w·m / T_iter

w workers and p PS with λ_w and λ_p cores, m samples a step of one worker, D embedding dimension (a
constant of the job, so it is left in the coefficient), S bytes of embeddings. The first five terms
are a reconstruction of the published form from the paper's text. The last is ours: look-ups
slow down as tables outgrow the caches and as a batch meets more distinct rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from sizewright.errors import InputError
from sizewright.models._base import Explanation, ThroughputModel
from sizewright.models.linear_time import TimeFit, fit_time, predict_time, relative_half_width
from sizewright.models.table import ALLOCATION_AXES, AXES, Table, as_columns, ended_well, known
from sizewright.spec.units import MIB

EQUATIONS = {
    "beta": "1",
    "compute": "m / λ_w",
    "update": "w / (p · λ_p)",
    "synchronisation": "w / p",
    "look_up": "m · D / p",
    "table_size": "m · log2(1 + S / (p · 1 MiB)) / (p · λ_p)",
}


def dlrover_terms(table: Table) -> NDArray[np.float64]:
    """The terms (n, 6) of a trial table or of allocations; unknown cores count as 1, unknown tables as 0 bytes."""
    columns = as_columns(table)
    workers, ps = columns["workers"], columns["ps"]
    worker_cpu, ps_cpu = known(columns["worker_cpu"], 1.0), known(columns["ps_cpu"], 1.0)
    batch, size = known(columns["batch_size"], 1.0), known(columns["embedding_bytes"], 0.0)
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


class DlroverModel(ThroughputModel):
    """NNLS over the terms above."""

    name = "dlrover"

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from trials that ended well. Raises InputError when there are none."""
        columns = as_columns(X, (*AXES, "throughput", "throughput_se"))
        throughput = columns["throughput"] if y is None else np.asarray(y, float)
        usable = ended_well(X) & np.isfinite(throughput) & (throughput > 0)
        usable &= (columns["workers"] >= 1) & (columns["ps"] >= 1)
        if not usable.any():
            raise InputError("No trial has workers, PS and a throughput above 0.", "Measure some first.")
        seconds = (columns["workers"] * known(columns["batch_size"], 1.0))[usable] / throughput[usable]
        claimed = np.nan_to_num(columns["throughput_se"][usable] / throughput[usable])
        terms = dlrover_terms({name: columns[name][usable] for name in AXES})
        relative_se = float(np.sqrt(np.mean(claimed**2)))
        where = np.column_stack([np.nan_to_num(columns[name][usable]) for name in ALLOCATION_AXES])
        distinct = len(np.unique(where, axis=0))
        self.fit_: TimeFit = fit_time(terms, seconds, tuple(EQUATIONS), distinct, relative_se)
        return self

    def predict(self, X: Table) -> NDArray[np.float64]:  # noqa: D102
        self._check_fitted()
        columns = as_columns(X)
        samples = columns["workers"] * known(columns["batch_size"], 1.0)
        return samples / predict_time(self.fit_, dlrover_terms(X))

    def predict_interval(self, X: Table, coverage: float = 0.9) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper samples/s; the interval of the time in log space, so that both stay positive."""
        middle = self.predict(X)
        factor = np.exp(np.minimum(relative_half_width(self.fit_, dlrover_terms(X), coverage), 5.0))
        return middle / factor, middle * factor

    def explain(self) -> Explanation:  # noqa: D102
        self._check_fitted()
        fit = self.fit_
        return Explanation(
            model=self.name,
            parameters={n: float(c) for n, c in zip(fit.names, fit.coefficients, strict=True)},
            equations=EQUATIONS,
            pinned=fit.pinned,
            distinct_allocations=fit.points,
            enough=fit.enough,
            needed=int(fit.excited.sum()) + 2,
        )
