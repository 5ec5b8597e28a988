"""Validation of a model that the user names or brings: its failures become errors, and its predictions are checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from sizewright.errors import InputError, SizewrightError
from sizewright.models._base import BaseThroughputModel, Explanation, Kind
from sizewright.models.axes import e_folds_outside
from sizewright.models.table import AXES, Table, as_columns, successful

Floats = NDArray[np.float64]
_REMEDY = "Test it with sizewright.testing.ModelContract, or use another model."


class ValidatedModel(BaseThroughputModel):
    """A validated copy of a model; the user's object stays unchanged.

    Raises InputError where the model fails with an error that is not Sizewright's, or returns invalid samples/s.
    """

    def __init__(self, model: BaseThroughputModel) -> None:
        self.model = deepcopy(model)
        self.name = model.name
        self.min_trials = model.min_trials
        self.prior_ranges = model.prior_ranges

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from trials: see `BaseThroughputModel`."""
        with self._translated_errors():
            self.model.fit(X, y)
        columns = as_columns(X, AXES)
        rows = successful(X)
        self.ranges_ = {axis: (min(column[rows]), max(column[rows])) for axis, column in columns.items() if rows.any()}
        return self

    def predict(self, X: Table) -> Floats:
        """Return samples/s (n,)."""
        with self._translated_errors():
            rates = self.model.predict(X)
        return self._checked(X, rates)[0]

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Return lower and upper samples/s (n,)."""
        with self._translated_errors():
            interval = self.model.predict_interval(X, coverage, kind)
        lower, upper = self._checked(X, *interval)
        return lower, upper

    def predict_with_interval(self, X: Table, coverage: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """Return predicted, lower and upper samples/s (n,)."""
        with self._translated_errors():
            rates, lower, upper = self.model.predict_with_interval(X, coverage)
        lower, rates, upper = self._checked(X, lower, rates, upper)
        return rates, lower, upper

    def curves(self, X: Table, count: int, rng: np.random.Generator) -> Floats:
        """Return samples/s (d, n) of at most `count` possible curves."""
        with self._translated_errors():
            curves = np.asarray(self.model.curves(X, count, rng), float)
        if curves.ndim != 2 or not 1 <= len(curves) <= count:
            raise InputError(f"The model {self.name} returned curves of shape {curves.shape}.", _REMEDY)
        self._checked(X, *curves, ascending=False)
        return curves

    def support(self, X: Table) -> Floats:
        """Return how far allocations (n,) lie outside what the model knows, in e-folds summed over the axes."""
        if type(self.model).support is BaseThroughputModel.support:
            return e_folds_outside(as_columns(X, AXES), self.ranges_)
        with self._translated_errors():
            return np.asarray(self.model.support(X), float)

    def within_run(self) -> ValidatedModel:
        """Return an unfitted copy for trials of one run."""
        return ValidatedModel(self.model.within_run())

    def explain(self) -> Explanation:
        """Return the model's explanation."""
        with self._translated_errors():
            return self.model.explain()

    def __sklearn_is_fitted__(self) -> bool:
        return self.model.__sklearn_is_fitted__()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except SizewrightError:
            raise
        except Exception as error:  # a model of another package may raise anything
            raise InputError(f"The model {self.name} failed: {type(error).__name__}: {error}.", _REMEDY) from error

    def _checked(self, X: Table, *rates: Floats, ascending: bool = True) -> list[Floats]:
        """Return the columns as arrays of samples/s (n,); raise InputError for invalid ones."""
        rows = len(as_columns(X, ("workers",))["workers"])
        columns = [np.asarray(column, float) for column in rates]
        model = f"The model {self.name}"
        for column in columns:
            if column.shape != (rows,):
                raise InputError(f"{model} returned rates of shape {column.shape} for {rows} allocations.", _REMEDY)
            if not (np.isfinite(column) & (column > 0)).all():
                raise InputError(f"{model} returned samples/s that are 0, negative or not finite.", _REMEDY)
        if ascending and any((low > high * (1 + 1e-9)).any() for low, high in pairwise(columns)):
            raise InputError(f"{model} returned intervals that do not contain its predictions.", _REMEDY)
        return columns
