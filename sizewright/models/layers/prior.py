"""The curve that a learned prior predicts, as a throughput model for a job without any trial."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from typing_extensions import Self

from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.default.residual_process import FEATURES, Features
from sizewright.models.prior import mechanistic
from sizewright.models.prior.curve import JobCurve
from sizewright.models.table import ALLOCATION_AXES, Table, as_columns, known

Floats = NDArray[np.float64]

_PATHS = 128


class PriorModel(BaseThroughputModel):
    """A job's curve with its uncertainty; there is nothing to fit."""

    name = "prior"

    def __init__(self, curve: JobCurve) -> None:
        self.curve = curve

    def fit(self, X: Table = (), y: Any = None) -> Self:
        """Return the model unchanged: it does not learn from trials, `ThroughputModel(foretold=...)` does."""
        return self

    def predict(self, X: Table) -> Floats:
        """Return samples/s (n,)."""
        return np.asarray(np.exp(self.curve.log_rates(X)))

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Return lower and upper samples/s (n,)."""
        check_interval(coverage, kind)
        log_rates = self.curve.log_rates(X)
        half_width = ndtri(0.5 + coverage / 2) * self.curve.sd(X, trial=kind == "trial")
        return np.exp(log_rates - half_width), np.exp(log_rates + half_width)

    def paths(self, X: Table, rng: np.random.Generator) -> Floats:
        """Return log samples/s (d, n) of possible curves; nearby allocations deviate alike."""
        curve = self.curve
        level = curve.widen * curve.guess.sd * rng.standard_normal((_PATHS, 1))
        slope = curve.widen * curve.beyond_sd(X) * rng.standard_normal((_PATHS, 1))
        return curve.log_rates(X) + level + slope + curve.widen * curve.form_sd * _shape_errors(X, rng)

    def explain(self) -> Explanation:
        """Return the mechanistic parameters that all jobs share."""
        return Explanation(
            model=self.name,
            parameters=mechanistic.as_record(self.curve.parameters),
            equations={"physics": str(mechanistic.__doc__)},
            pinned=(),
            distinct_allocations=0,
            enough=True,
            needed=0,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _shape_errors(X: Table, rng: np.random.Generator) -> Floats:
    """Return draws (d, n) of a Gaussian process over the logarithms of the axes, with standard deviation 1."""
    columns = as_columns(X, ALLOCATION_AXES)
    places = np.column_stack([np.log(np.maximum(known(column, 1.0), 0.05)) for column in columns.values()])
    features = Features.draw(places.shape[1], rng)
    drawn: Floats = rng.standard_normal((_PATHS, FEATURES)) @ features.of(places).T
    return drawn
