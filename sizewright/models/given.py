"""A model that the user names or brings: whatever goes wrong in it is one sentence, and what it tells is checked."""

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
_REMEDY = "Hold it against sizewright.testing.ModelContract, or take another model."


class GivenModel(BaseThroughputModel):
    """A copy of the model, so that the user's own stays as it is.

    Raises InputError where it fails otherwise than by an error of Sizewright, or tells samples/s that cannot be.
    """

    def __init__(self, model: BaseThroughputModel) -> None:
        self.model = deepcopy(model)
        self.name = model.name

    def fit(self, X: Table, y: Any = None) -> Self:
        """See `BaseThroughputModel`."""
        with self._told():
            self.model.fit(X, y)
        return self

    def predict(self, X: Table) -> Floats:
        """Samples/s (n,)."""
        with self._told():
            rates = self.model.predict(X)
        return self._checked(X, rates)[0]

    def predict_interval(self, X: Table, coverage: float = 0.9, kind: Kind = "trial") -> tuple[Floats, Floats]:
        """Lower and upper samples/s (n,)."""
        with self._told():
            interval = self.model.predict_interval(X, coverage, kind)
        lower, upper = self._checked(X, *interval)
        return lower, upper

    def predict_with_interval(self, X: Table, coverage: float = 0.9) -> tuple[Floats, Floats, Floats]:
        """Middle, lower and upper samples/s (n,)."""
        with self._told():
            told = self.model.predict_with_interval(X, coverage)
        middle, lower, upper = told
        lower, middle, upper = self._checked(X, lower, middle, upper)
        return middle, lower, upper

    def explain(self) -> Explanation:
        """Of the model itself."""
        with self._told():
            return self.model.explain()

    def __sklearn_is_fitted__(self) -> bool:
        return self.model.__sklearn_is_fitted__()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SizewrightError:
            raise
        except Exception as error:  # whatever another package's model raises
            raise InputError(f"The model {self.name} failed: {type(error).__name__}: {error}.", _REMEDY) from error

    def _checked(self, X: Table, *told: Floats) -> list[Floats]:
        """Columns that are to be of the same length, samples/s, and each nowhere below the one before."""
        rows = len(as_columns(X, ("workers",))["workers"])
        columns = [np.asarray(column, float) for column in told]
        for column in columns:
            if column.shape != (rows,):
                raise InputError(f"The model {self.name} tells {column.shape} rates of {rows} allocations.", _REMEDY)
            if not (np.isfinite(column) & (column > 0)).all():
                raise InputError(f"The model {self.name} tells samples/s that are 0, negative or no number.", _REMEDY)
        if any((low > high * (1 + 1e-9)).any() for low, high in pairwise(columns)):
            raise InputError(f"The model {self.name} tells intervals that do not hold what it predicts.", _REMEDY)
        return columns
