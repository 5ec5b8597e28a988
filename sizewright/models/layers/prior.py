"""A model with a prior: it predicts before any trial."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from typing_extensions import Self

from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
from sizewright.models.matern import smooth_draws
from sizewright.models.prior import mechanistic
from sizewright.models.prior.curve import JobCurve
from sizewright.models.table import Table

Floats = NDArray[np.float64]


class PriorModel(BaseThroughputModel):
    """The curve that a learned prior predicts for a job; from the first successful trial on, `model`.

    `model` is to know the curve itself, as `ThroughputModel(prior_curve=curve)` does.
    """

    name = "prior"
    min_trials = 0

    def __init__(self, curve: JobCurve, model: BaseThroughputModel) -> None:
        self.curve = curve
        self.model = model
        self.prior_ranges = curve.ranges
        self.fitted_: BaseThroughputModel | None = None

    def fit(self, X: Table = (), y: Any = None) -> Self:
        """Learn from a trial table, which may be empty."""
        self.fitted_ = None
        with contextlib.suppress(NotEnoughDataError):
            self.fitted_ = self.model.fit(X, y)
        self.name = self.fitted_.name if self.fitted_ else "prior"
        return self

    def predict(self, X: Table) -> Floats:
        """Return samples/s (n,)."""
        return self.fitted_.predict(X) if self.fitted_ else np.exp(self.curve.log_rates(X))

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Return lower and upper samples/s (n,)."""
        if self.fitted_:
            return self.fitted_.predict_interval(X, coverage, kind)
        check_interval(coverage, kind)
        log_rates = self.curve.log_rates(X)
        half_width = ndtri(0.5 + coverage / 2) * self.curve.sd(X, trial=kind == "trial")
        return np.exp(log_rates - half_width), np.exp(log_rates + half_width)

    def predict_with_interval(self, X: Table, coverage: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """Return predicted, lower and upper samples/s (n,)."""
        if self.fitted_:
            return self.fitted_.predict_with_interval(X, coverage)
        return super().predict_with_interval(X, coverage)

    def curves(self, X: Table, count: int, rng: np.random.Generator) -> Floats:
        """Return samples/s (d, n) of at most `count` possible curves; nearby allocations deviate alike."""
        if self.fitted_:
            return self.fitted_.curves(X, count, rng)
        curve = self.curve
        log_offset = curve.calibration_factor * curve.effect.sd * rng.standard_normal((count, 1))
        slope = curve.calibration_factor * curve.extrapolation_sd(X) * rng.standard_normal((count, 1))
        shape = curve.calibration_factor * curve.shape_sd * smooth_draws(X, count, rng)
        return np.asarray(np.exp(curve.log_rates(X) + log_offset + slope + shape))

    def support(self, X: Table) -> Floats:
        """Return how far allocations (n,) lie outside what the prior and the trials cover, in e-folds."""
        return self.fitted_.support(X) if self.fitted_ else self.curve.extrapolation(X)

    def within_run(self) -> PriorModel:
        """Return an unfitted copy for trials of one run."""
        return PriorModel(self.curve, self.model.within_run())

    def explain(self) -> Explanation:
        """Return the model's parameters; before any trial, the mechanistic ones that all jobs share."""
        if self.fitted_:
            return self.fitted_.explain()
        return Explanation(
            model=self.name,
            parameters=mechanistic.as_record(self.curve.parameters),
            equations=dict(mechanistic.EQUATIONS),
            pinned=(),
            distinct_allocations=0,
            enough=True,
            needed=0,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True
