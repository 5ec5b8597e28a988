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
from sizewright.models.table import Table, as_columns

Floats = NDArray[np.float64]
_REMEDY = "Test it with sizewright.testing.ModelContract, or use another model."


class ValidatedModel(BaseThroughputModel):
    """A validated copy of a model; the user's object stays unchanged.

    Raises InputError where the model fails with an error that is not Sizewright's, or returns invalid samples/s.
    """

    def __init__(self, model: BaseThroughputModel) -> None:
        self.model = deepcopy(model)
        self.name = model.name

    def fit(self, X: Table, y: Any = None) -> Self:
        """Learn from trials: see `BaseThroughputModel`."""
        with self._translated_errors():
            self.model.fit(X, y)
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

    def _checked(self, X: Table, *rates: Floats) -> list[Floats]:
        """Return the columns, in ascending order, as arrays of samples/s (n,); raise InputError for invalid ones."""
        rows = len(as_columns(X, ("workers",))["workers"])
        columns = [np.asarray(column, float) for column in rates]
        model = f"The model {self.name}"
        for column in columns:
            if column.shape != (rows,):
                raise InputError(f"{model} returned rates of shape {column.shape} for {rows} allocations.", _REMEDY)
            if not (np.isfinite(column) & (column > 0)).all():
                raise InputError(f"{model} returned samples/s that are 0, negative or not finite.", _REMEDY)
        if any((low > high * (1 + 1e-9)).any() for low, high in pairwise(columns)):
            raise InputError(f"{model} returned intervals that do not contain its predictions.", _REMEDY)
        return columns
