"""What models of iteration time share: non-negative terms of an allocation, fitted by NNLS, as samples/s."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from sizewright.errors import InputError
from sizewright.models._base import BaseThroughputModel, Explanation, Kind
from sizewright.models.axes import checked_rates
from sizewright.models.linear_time import TimeFit, fit_time, predict_time, relative_half_width
from sizewright.models.table import ALLOCATION_AXES, AXES, Table, as_columns, ended_well, known


class TimeModel(BaseThroughputModel):
    """throughput = w·m / T, with T a sum of terms whose coefficients are not negative."""

    equations: dict[str, str]
    """The terms by name, in the order of the columns of `terms`."""

    @abstractmethod
    def terms(self, table: Table) -> NDArray[np.float64]:
        """The terms (n, k) of a trial table or of allocations."""

    def takes(self, columns: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        """Which trials (n,) are of the kind that it describes: those with workers, unless a model needs more."""
        return np.asarray(columns["workers"] >= 1)

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from trials that ended well. Raises InputError when there are none."""
        columns = as_columns(X, (*AXES, "throughput", "throughput_se"))
        throughput = checked_rates(columns["throughput"], y)
        usable = ended_well(X) & np.isfinite(throughput) & (throughput > 0) & self.takes(columns)
        if not usable.any():
            raise InputError("No trial has the replicas that its job needs and a throughput above 0.", "Measure some.")
        seconds = (columns["workers"] * known(columns["batch_size"], 1.0))[usable] / throughput[usable]
        claimed = np.nan_to_num(columns["throughput_se"][usable] / throughput[usable])
        terms = self.terms({name: columns[name][usable] for name in AXES})
        relative_se = float(np.sqrt(np.mean(claimed**2)))
        where = np.column_stack([np.nan_to_num(columns[name][usable]) for name in ALLOCATION_AXES])
        distinct = len(np.unique(where, axis=0))
        self.fit_: TimeFit = fit_time(terms, seconds, tuple(self.equations), distinct, relative_se)
        return self

    def predict(self, X: Table) -> NDArray[np.float64]:
        self._check_fitted()
        columns = as_columns(X)
        samples = columns["workers"] * known(columns["batch_size"], 1.0)
        return samples / predict_time(self.fit_, self.terms(X))

    def predict_interval(
        self, X: Table, coverage: float = 0.9, kind: Kind = "trial"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper samples/s; the interval of the time in log space, so that both stay positive."""
        middle = self.predict(X)
        half = relative_half_width(self.fit_, self.terms(X), coverage, of_trial=kind == "trial")
        factor = np.exp(np.minimum(half, 5.0))
        return middle / factor, middle * factor

    def explain(self) -> Explanation:
        self._check_fitted()
        fit = self.fit_
        return Explanation(
            model=self.name,
            parameters={n: float(c) for n, c in zip(fit.names, fit.coefficients, strict=True)},
            equations=self.equations,
            pinned=fit.pinned,
            distinct_allocations=fit.points,
            enough=fit.enough,
            needed=int(fit.excited.sum()) + 2,
        )
