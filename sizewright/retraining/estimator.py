"""A prior as a scikit-learn regressor over jobs and allocations, the form in which MLflow serves it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from typing_extensions import Self

from sizewright.errors import NotEnoughDataError
from sizewright.models.prior import LearnedPrior
from sizewright.spec import Job

COLUMNS = ("workers", "ps", "worker_cpu", "ps_cpu")


class PriorRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor of samples/s (n,) on frames with the columns `job` (a description as JSON) and COLUMNS.

    `record` is the prior as JSON. Nothing else is stored, so loading has to trust nothing but text.
    """

    def __init__(self, record: str = "") -> None:
        self.record = record

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Return the regressor unchanged: its prior is fitted already."""
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return samples/s (n,); NaN for jobs that the prior cannot predict."""
        prior = LearnedPrior.from_json(self.record, "of this model")
        rates = np.full(len(X), np.nan)
        jobs = X["job"].to_numpy()
        for text in dict.fromkeys(jobs):
            of_job = jobs == text
            try:
                curve = prior.curve(Job.model_validate_json(text))
            except NotEnoughDataError:
                continue
            rates[of_job] = np.exp(curve.log_rates(X.loc[of_job, list(COLUMNS)]))
        return rates

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.record)


TRUSTED = (f"{PriorRegressor.__module__}.{PriorRegressor.__qualname__}",)
"""Types that skops may load."""
