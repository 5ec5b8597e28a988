"""What a learned prior foretells of a job, as a throughput model: for a job without any trial."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from typing_extensions import Self

from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.prior import physics
from sizewright.models.prior.curve import JobCurve
from sizewright.models.residual import FEATURES, Features
from sizewright.models.table import ALLOCATION_AXES, Table, as_columns, known

Floats = NDArray[np.float64]

_PATHS = 128


class ForetoldModel(BaseThroughputModel):
    """A curve with its uncertainty; there is nothing to fit."""

    name = "prior"

    def __init__(self, foretold: JobCurve) -> None:
        self.foretold = foretold

    def fit(self, X: Table = (), y: Any = None) -> Self:
        """Whatever was measured, it stays as it is: `ThroughputModel(foretold=...)` learns from trials too."""
        return self

    def predict(self, X: Table) -> Floats:
        """Samples/s (n,)."""
        return np.asarray(np.exp(self.foretold.log_rates(X)))

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Lower and upper samples/s (n,)."""
        check_interval(coverage, kind)
        middle = self.foretold.log_rates(X)
        half = ndtri(0.5 + coverage / 2) * self.foretold.sd(X, trial=kind == "trial")
        return np.exp(middle - half), np.exp(middle + half)

    def paths(self, X: Table, rng: np.random.Generator) -> Floats:
        """Logarithms of samples/s (d, n): whole curves that are possible; near allocations stray alike."""
        curve = self.foretold
        level = curve.widen * curve.guess.sd * rng.standard_normal((_PATHS, 1))
        slope = curve.widen * curve.beyond_sd(X) * rng.standard_normal((_PATHS, 1))
        return curve.log_rates(X) + level + slope + curve.widen * curve.form_sd * _forms(X, rng)

    def explain(self) -> Explanation:
        """The physics that all jobs share."""
        return Explanation(
            model=self.name,
            parameters=physics.as_record(self.foretold.parameters),
            equations={"physics": str(physics.__doc__)},
            pinned=(),
            distinct_allocations=0,
            enough=True,
            needed=0,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _forms(X: Table, rng: np.random.Generator) -> Floats:
    """Draws (d, n) of a Gaussian process over the logarithms of the axes, standard deviation 1."""
    columns = as_columns(X, ALLOCATION_AXES)
    places = np.column_stack([np.log(np.maximum(known(column, 1.0), 0.05)) for column in columns.values()])
    features = Features.draw(places.shape[1], rng)
    drawn: Floats = rng.standard_normal((_PATHS, FEATURES)) @ features.of(places).T
    return drawn
