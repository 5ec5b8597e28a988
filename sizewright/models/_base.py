"""What every throughput model is: a scikit-learn estimator over the trial table, with intervals and an account.

Estimators follow scikit-learn's protocol (parameters, clone, tags) without importing it:
that import alone would double the time of `sizewright recommend`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from sizewright.errors import InputError
from sizewright.models.table import Table

Kind = Literal["trial", "mean"]
"""Interval of another measurement, or of the curve that measurements lie around."""


def check_share(name: str, share: float) -> None:
    """Raises InputError for what is no share."""
    if not 0 < share < 1:
        raise InputError(f"A {name} of {share:g} is none.", "Give a share between 0 and 1, such as 0.9.")


def check_interval(coverage: float, kind: str) -> None:
    """Raises InputError where there is no interval of such a `coverage`, a share, and `kind`."""
    check_share("coverage", coverage)
    if kind not in get_args(Kind):
        raise InputError(f"There is no interval of kind {kind!r}.", f"Give one of: {', '.join(get_args(Kind))}.")


@dataclass(frozen=True)
class Explanation:
    """What a fitted model rests on."""

    model: str
    parameters: dict[str, float]
    """By name, in the units of its equation."""
    equations: dict[str, str]
    """Where each parameter enters."""
    pinned: tuple[str, ...]
    """Parameters that the trials told little of."""
    distinct_allocations: int
    """That ended well."""
    enough: bool
    """Whether these determine the model."""
    needed: int
    """So many distinct allocations would."""
    ceiling: float | None = None
    """Samples/s that neither more workers nor more PS exceed."""


class BaseThroughputModel(ABC):
    """Allocation → samples/s.

    Each method that takes a table raises InputError for one that cannot be used; each that needs a fit raises
    scikit-learn's NotFittedError before it.
    """

    name: str

    @abstractmethod
    def fit(self, X: Table, y: ArrayLike | None = None) -> Self:
        """Learn from a trial table X and its throughput y (n,), by default X's own column, in samples/s.

        Raises NotEnoughDataError for too few distinct allocations.
        """

    @abstractmethod
    def predict(self, X: Table) -> NDArray[np.float64]:
        """Samples/s (n,)."""

    @abstractmethod
    def predict_interval(
        self, X: Table, coverage: float = 0.9, kind: Kind = "trial"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper samples/s, (n,) each, between which another trial (or the curve) lies with probability
        `coverage`."""

    def predict_with_interval(
        self, X: Table, coverage: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Samples/s and the interval that holds another trial with probability `coverage`: middle, lower, upper, (n,)
        each."""
        return self.predict(X), *self.predict_interval(X, coverage)

    @abstractmethod
    def explain(self) -> Explanation:
        """Which parameters had evidence."""

    def score(self, X: Table, y: ArrayLike) -> float:
        """Minus the median relative error against y (n,), samples/s, so that greater is better."""
        measured = np.asarray(y, float)
        return -float(np.median(np.abs(self.predict(X) - measured) / measured))

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Constructor arguments by name; `deep` is scikit-learn's, and changes nothing here."""
        names = [p for p in inspect.signature(type(self)).parameters if p not in ("args", "kwargs")]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: object) -> Self:
        """Change constructor arguments. Raises ValueError for one that there is not."""
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
