"""A throughput model in its own package: a product of powers of the axes, as in Cobb and Douglas (1928).

    log throughput = c + Σ_i a_i · log axis_i

over the axes in which the trials differ (workers, PS, their cores, …), fitted by least squares. The interval is that of
linear regression: s·√(1 + xᵀ(XᵀX)⁻¹x) times Student's t with n − k degrees of freedom for another trial; without the 1
for the mean. It widens with the distance to the measured allocations.

The package is complete: `test_contract.py` runs the contract of models, and `pyproject.toml` registers the name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit
from typing_extensions import Self

from sizewright.errors import NotEnoughDataError
from sizewright.models import (
    BaseThroughputModel,
    Explanation,
    Kind,
    check_interval,
    count_distinct,
    prepare_training_data,
)

Floats = NDArray[np.float64]


class PowerLawModel(BaseThroughputModel):
    """Predicts samples/s as a product of powers of the axes."""

    name = "power-law"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a trial table. Raises NotEnoughDataError if it has fewer distinct allocations than powers plus two."""
        trials = prepare_training_data(X, y)  # successful trials, with their axes in logarithms
        axes, logs = np.column_stack(trials.axes), np.log(trials.throughput)
        varied = np.ptp(axes, axis=0) > 0
        terms = np.column_stack([np.ones(len(axes)), axes[:, varied]])
        distinct, needed = count_distinct(trials.axes), terms.shape[1] + 1
        if distinct < needed:
            message = f"{needed - 2} powers need {needed} distinct allocations, got {distinct}."
            raise NotEnoughDataError(message, needed - distinct)
        self.imputer_, self.varied_, self.distinct_, self.needed_ = trials.imputer, varied, distinct, needed
        self.names_ = [name for name, used in zip(trials.axes._fields, varied, strict=True) if used]
        self.powers_ = np.linalg.lstsq(terms, logs, rcond=None)[0]
        self.inverse_gram_ = np.linalg.pinv(terms.T @ terms)
        self.degrees_of_freedom_ = max(len(logs) - terms.shape[1], 1)
        residuals = logs - terms @ self.powers_
        self.residual_sd_ = max(float(np.sqrt(residuals @ residuals / self.degrees_of_freedom_)), trials.relative_se)
        return self

    def predict(self, X: Any) -> Floats:
        """Return samples/s (n,)."""
        return np.asarray(np.exp(self._terms(X) @ self.powers_))

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Return lower and upper samples/s (n,) of another trial, or of the mean."""
        check_interval(coverage, kind)
        terms = self._terms(X)
        variance = np.sum((terms @ self.inverse_gram_) * terms, axis=1) + (kind == "trial")
        factor = np.exp(stdtrit(self.degrees_of_freedom_, 0.5 + coverage / 2) * self.residual_sd_ * np.sqrt(variance))
        middle = np.exp(terms @ self.powers_)
        return middle / factor, middle * factor

    def explain(self) -> Explanation:
        """Return the powers. None is pinned, because only axes that vary have a power."""
        self._check_fitted()
        names = ["scale", *self.names_]
        return Explanation(
            model=self.name,
            parameters=dict(zip(names, self.powers_.tolist(), strict=True)),
            equations={"scale": "c: log samples/s if every axis is 1"}
            | {name: f"the power of {name}" for name in self.names_},
            pinned=(),
            distinct_allocations=self.distinct_,
            enough=self.distinct_ >= self.needed_,
            needed=self.needed_,
        )

    def _terms(self, X: Any) -> Floats:
        """Return (n, k): ones, and the logarithms of the axes in which the trials differ."""
        self._check_fitted()
        axes = np.column_stack(self.imputer_.axes(X))
        return np.column_stack([np.ones(len(axes)), axes[:, self.varied_]])
