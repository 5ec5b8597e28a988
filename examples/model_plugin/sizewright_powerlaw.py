"""A throughput model of one's own: each axis of an allocation counts as a power, as in Cobb and Douglas (1928).

    log throughput = c + Σ_i a_i · log axis_i

over the axes that the trials vary (workers, PS, their cores, …), by least squares. The interval is the exact one of
linear regression: s·√(1 + xᵀ(XᵀX)⁻¹x) with Student's t at n − k degrees of freedom for another trial, without the 1 for
the curve, so that it widens by itself away from what was measured.

It is complete: it keeps the contract of models, which `test_contract.py` beside it holds it against, and is found by
name once the package is installed, since `pyproject.toml` registers it.
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
    """Samples/s as a product of powers of the axes."""

    name = "power-law"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a trial table. Raises NotEnoughDataError with fewer distinct allocations than powers and two."""
        trials = prepare_training_data(X, y)  # those that ended well, checked, their axes in logarithms
        axes, logs = np.column_stack(trials.axes), np.log(trials.throughput)
        varies = np.ptp(axes, axis=0) > 0
        terms = np.column_stack([np.ones(len(axes)), axes[:, varies]])
        distinct, needed = count_distinct(trials.axes), terms.shape[1] + 1
        if distinct < needed:
            raise NotEnoughDataError(f"{distinct} allocations do not tell {needed - 2} powers.", needed - distinct)
        self.imputer_, self.varies_, self.distinct_, self.needed_ = trials.imputer, varies, distinct, needed
        self.names_ = [name for name, on in zip(trials.axes._fields, varies, strict=True) if on]
        self.powers_ = np.linalg.lstsq(terms, logs, rcond=None)[0]
        self.spread_ = np.linalg.pinv(terms.T @ terms)
        self.freedom_ = max(len(logs) - terms.shape[1], 1)
        off = logs - terms @ self.powers_
        self.noise_ = max(float(np.sqrt(off @ off / self.freedom_)), trials.relative_se)
        return self

    def predict(self, X: Any) -> Floats:
        """Samples/s (n,)."""
        return np.asarray(np.exp(self._terms(X) @ self.powers_))

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Lower and upper samples/s (n,) of another trial, or of the curve."""
        check_interval(coverage, kind)
        terms = self._terms(X)
        reach = np.sum((terms @ self.spread_) * terms, axis=1) + (kind == "trial")
        factor = np.exp(stdtrit(self.freedom_, 0.5 + coverage / 2) * self.noise_ * np.sqrt(reach))
        middle = np.exp(terms @ self.powers_)
        return middle / factor, middle * factor

    def explain(self) -> Explanation:
        """The powers; all of them have evidence, since axes that did not vary have none."""
        self._check_fitted()
        names = ["scale", *self.names_]
        return Explanation(
            model=self.name,
            parameters=dict(zip(names, self.powers_.tolist(), strict=True)),
            equations={"scale": "c: log samples/s where every axis is 1"}
            | {name: f"the power of {name}" for name in self.names_},
            pinned=(),
            distinct_allocations=self.distinct_,
            enough=self.distinct_ >= self.needed_,
            needed=self.needed_,
        )

    def _terms(self, X: Any) -> Floats:
        """(n, k): one, and the logarithms of the axes that the trials varied."""
        self._check_fitted()
        axes = np.column_stack(self.imputer_.axes(X))
        return np.column_stack([np.ones(len(axes)), axes[:, self.varies_]])
