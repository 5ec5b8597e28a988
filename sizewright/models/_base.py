"""The base class of throughput models: scikit-learn estimators over the trial table, with intervals.

Estimators follow scikit-learn's protocol (parameters, clone, tags) without importing it:
that import alone would double the time of `sizewright recommend`.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from typing_extensions import Self

from sizewright.errors import InputError
from sizewright.models.matern import smooth_draws
from sizewright.models.table import Table

Kind = Literal["trial", "mean"]
"""The kind of an interval: that of another trial, or that of the mean curve."""
CURVES = 128
"""The number of curves that planner and controller draw."""


def check_share(name: str, share: float) -> None:
    """Raise InputError for a number that does not lie between 0 and 1."""
    if not 0 < share < 1:
        raise InputError(f"{name} must lie between 0 and 1, got {share:g}.", "Give a share such as 0.9.")


def check_interval(coverage: float, kind: str) -> None:
    """Raise InputError for an invalid coverage or kind of an interval."""
    check_share("coverage", coverage)
    if kind not in get_args(Kind):
        raise InputError(f"{kind!r} is not a kind of interval.", f"Give one of: {', '.join(get_args(Kind))}.")


@dataclass(frozen=True)
class Explanation:
    """The parameters of a fitted model, and the evidence for them."""

    model: str
    parameters: dict[str, float]
    """Values by name, in the units of the equations."""
    equations: dict[str, str]
    """The equation or term of each parameter."""
    pinned: tuple[str, ...]
    """Parameters that the trials did not determine."""
    distinct_allocations: int
    """Number of distinct allocations among the successful trials."""
    enough: bool
    """True where these allocations determine the model."""
    needed: int
    """Number of distinct allocations that determine the model."""
    ceiling: float | None = None
    """Samples/s that no number of workers or PS exceeds."""
    host_sd: float = 0.0
    """Standard deviation of the host's state from trial to trial, in log CPU seconds a sample, that was corrected."""


class BaseThroughputModel(ABC):
    """A model of the throughput of allocations, in samples/s.

    A model must define `fit`, `predict`, `predict_interval` and `explain`. It then plans trials, sizes jobs and tunes
    running ones: what else these need has a default here, which a model may replace.

    Methods that take a table raise InputError for a table that cannot be used. Methods that need a fitted model raise
    scikit-learn's NotFittedError before `fit`.
    """

    name: str
    min_trials: int = 3
    """Number of distinct allocations from which `fit` works; 0 if the model predicts before any trial."""
    prior_ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Smallest and largest value of each axis that the model knows before any trial of the job."""

    @abstractmethod
    def fit(self, X: Table, y: ArrayLike | None = None) -> Self:
        """Learn from a trial table X and its throughput y (n,) in samples/s, by default the column of X.

        Raises NotEnoughDataError for too few distinct allocations.
        """

    @abstractmethod
    def predict(self, X: Table) -> NDArray[np.float64]:
        """Return samples/s (n,)."""

    @abstractmethod
    def predict_interval(
        self, X: Table, coverage: float = 0.9, kind: Kind = "trial"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return lower and upper samples/s, (n,) each.

        Another trial (or the curve, with `kind="mean"`) lies between them with probability `coverage`.
        """

    def predict_with_interval(
        self, X: Table, coverage: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return samples/s and the interval that holds another trial with probability `coverage`.

        The order is prediction, lower, upper, (n,) each.
        """
        return self.predict(X), *self.predict_interval(X, coverage)

    @abstractmethod
    def explain(self) -> Explanation:
        """Return the parameters, and which of them the trials determined."""

    def curves(self, X: Table, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return samples/s (d, n) of at most `count` possible curves, in which nearby allocations deviate alike.

        By default they are smooth random functions about the prediction, as wide as the interval of the mean curve.
        """
        lower, upper = self.predict_interval(X, 0.9, "mean")
        sd = np.log(upper / lower) / (2 * ndtri(0.95))
        level, shape = rng.standard_normal((count, 1)), smooth_draws(X, count, rng)
        return np.asarray(self.predict(X) * np.exp(sd * (level + shape) / np.sqrt(2)))

    def support(self, X: Table) -> NDArray[np.float64]:
        """Return how far allocations (n,) lie outside what the model knows, in e-folds summed over the axes.

        By default 0. `ValidatedModel` returns the distance from the ranges of the trials for a model without its own.
        """
        return np.zeros(len(self.predict(X)))

    def within_run(self) -> BaseThroughputModel:
        """Return an unfitted copy for trials of one run, which differ by less than those of several days."""
        return copy.deepcopy(self)

    def score(self, X: Table, y: ArrayLike) -> float:
        """Return minus the median relative error against y (n,) in samples/s, so that greater is better."""
        measured = np.asarray(y, float)
        return -float(np.median(np.abs(self.predict(X) - measured) / measured))

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return constructor arguments by name; `deep` has no effect."""
        names = [p for p in inspect.signature(type(self)).parameters if p not in ("args", "kwargs")]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: object) -> Self:
        """Change constructor arguments. Raises ValueError for an unknown name."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=False),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(two_d_array=False),
        )

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit with trials first.")

    def __sklearn_is_fitted__(self) -> bool:
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))
