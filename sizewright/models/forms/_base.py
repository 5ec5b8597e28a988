"""The base of models of iteration time: non-negative terms of an allocation, fitted by NNLS."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.formatting import format_count
from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.axes import MIN_ALLOCATIONS, count_distinct, prepare_training_data
from sizewright.models.forms.linear_time import TimeFit, fit_time, predict_time, relative_half_width
from sizewright.models.table import Table, filled

# Lower bound of a step, as a share of the shortest measured step for the same computation; it applies where all kept
# terms vanish.
_MIN_STEP_SHARE = 0.1
_MAX_LOG_HALF_WIDTH = 5.0


class _Steps(NamedTuple):
    """Steps at allocations (n)."""

    samples: NDArray[np.float64]
    """Samples of a step of all workers (n,)."""
    seconds: NDArray[np.float64]
    terms: NDArray[np.float64]
    """(n, k)"""
    at_bound: NDArray[np.bool_]
    """Where the terms are below the lower bound of a step (n,)."""


class TimeModel(BaseThroughputModel):
    """throughput = w·m / T, with T a sum of terms whose coefficients are not negative."""

    equations: dict[str, str]
    """Equations of the terms by name, in the order of the columns of `terms`."""

    @abstractmethod
    def terms(self, table: Table) -> NDArray[np.float64]:
        """Return the terms (n, k) of a trial table or of allocations."""

    def takes(self, columns: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        """Return which trials (n,) the model describes: those with workers, unless a model needs more."""
        return np.asarray(columns["workers"] >= 1)

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from successful trials. Raises NotEnoughDataError with fewer than three distinct allocations."""
        trials = prepare_training_data(X, y)
        columns = {name: column[trials.rows] for name, column in trials.imputer.filled(X, trials=True).items()}
        takes = self.takes(columns)
        distinct = count_distinct(trials.axes.pick(takes)) if takes.any() else 0
        if distinct < MIN_ALLOCATIONS:
            raise NotEnoughDataError(
                f"{format_count(distinct, 'distinct allocation')} with the replicas that {self.name} describes "
                f"{'is' if distinct == 1 else 'are'} too few.",
                MIN_ALLOCATIONS - distinct,
            )
        columns = {name: column[takes] for name, column in columns.items()}
        seconds = columns["workers"] * filled(columns["batch_size"], 1.0) / trials.throughput[takes]
        self.imputer_ = trials.imputer
        self.min_seconds_ = float((seconds / _compute(columns)).min())
        self.fit_: TimeFit = fit_time(self.terms(columns), seconds, tuple(self.equations), distinct, trials.relative_se)
        return self

    def predict(self, X: Table) -> NDArray[np.float64]:
        steps = self._steps(X)
        return steps.samples / steps.seconds

    def _steps(self, X: Table) -> _Steps:
        self._check_fitted()
        columns = self.imputer_.filled(X)
        if not self.takes(columns).all():
            raise InputError(
                f"The model {self.name} does not describe allocations with these replicas.",
                "Give allocations with the replicas that it was fitted to, or another model.",
            )
        samples = columns["workers"] * filled(columns["batch_size"], 1.0)
        terms = self.terms(columns)
        seconds = predict_time(self.fit_, terms)
        lower = _MIN_STEP_SHARE * self.min_seconds_ * _compute(columns)
        return _Steps(samples, np.maximum(seconds, lower), terms, seconds < lower)

    def predict_interval(
        self, X: Table, coverage: float = 0.9, kind: Kind = "trial"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return lower and upper samples/s (n,).

        The interval of the time is taken in log space, so that both ends are positive.
        """
        check_interval(coverage, kind)
        steps = self._steps(X)
        half_width = relative_half_width(self.fit_, steps.terms, steps.seconds, coverage, of_trial=kind == "trial")
        factor = np.exp(np.where(steps.at_bound, _MAX_LOG_HALF_WIDTH, np.minimum(half_width, _MAX_LOG_HALF_WIDTH)))
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
    """Return samples of a worker's step per core (n,)."""
    return np.asarray(filled(columns["batch_size"], 1.0) / filled(columns["worker_cpu"], 1.0))
