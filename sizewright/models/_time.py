"""What models of iteration time share: non-negative terms of an allocation, fitted by NNLS, as samples/s."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.axes import LEAST_ALLOCATIONS, count_distinct, measured
from sizewright.models.linear_time import TimeFit, fit_time, predict_time, relative_half_width
from sizewright.models.table import Table, known

# Of the shortest step measured for as much computing: no step takes less, even where no term that was kept is left.
_LEAST = 0.1
_WIDEST = 5.0  # in log


class _Steps(NamedTuple):
    """Of allocations (n): samples and seconds of a step, the terms (n, k) of these, and where terms tell too little."""

    samples: NDArray[np.float64]
    seconds: NDArray[np.float64]
    terms: NDArray[np.float64]
    untold: NDArray[np.bool_]


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
        """Learn from trials that ended well. Raises NotEnoughDataError with fewer than three distinct allocations."""
        trials = measured(X, y)
        columns = {name: column[trials.rows] for name, column in trials.usual.filled(X, trials=True).items()}
        takes = self.takes(columns)
        distinct = count_distinct(trials.axes.pick(takes)) if takes.any() else 0
        if distinct < LEAST_ALLOCATIONS:
            raise NotEnoughDataError(
                f"{distinct} of the allocations have the replicas that {self.name} describes.",
                LEAST_ALLOCATIONS - distinct,
            )
        columns = {name: column[takes] for name, column in columns.items()}
        seconds = columns["workers"] * known(columns["batch_size"], 1.0) / trials.throughput[takes]
        self.usual_ = trials.usual
        self.least_ = float((seconds / _compute(columns)).min())
        self.fit_: TimeFit = fit_time(self.terms(columns), seconds, tuple(self.equations), distinct, trials.relative_se)
        return self

    def predict(self, X: Table) -> NDArray[np.float64]:
        steps = self._steps(X)
        return steps.samples / steps.seconds

    def _steps(self, X: Table) -> _Steps:
        self._check_fitted()
        columns = self.usual_.filled(X)
        if not self.takes(columns).all():
            raise InputError(
                f"The model {self.name} tells nothing of such replicas.", "Ask about those it was fitted to."
            )
        samples = columns["workers"] * known(columns["batch_size"], 1.0)
        terms = self.terms(columns)
        told, least = predict_time(self.fit_, terms), _LEAST * self.least_ * _compute(columns)
        return _Steps(samples, np.maximum(told, least), terms, told < least)

    def predict_interval(
        self, X: Table, coverage: float = 0.9, kind: Kind = "trial"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper samples/s; the interval of the time in log space, so that both stay positive."""
        check_interval(coverage, kind)
        steps = self._steps(X)
        half = relative_half_width(self.fit_, steps.terms, steps.seconds, coverage, of_trial=kind == "trial")
        factor = np.exp(np.where(steps.untold, _WIDEST, np.minimum(half, _WIDEST)))
        middle = steps.samples / steps.seconds
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


def _compute(columns: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Samples a step over cores, (n,)."""
    return np.asarray(known(columns["batch_size"], 1.0) / known(columns["worker_cpu"], 1.0))
