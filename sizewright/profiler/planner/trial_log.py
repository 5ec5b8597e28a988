"""The trials that a planner was told, checked, with the candidate that each measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sizewright.errors import InputError
from sizewright.models.axes import check_columns
from sizewright.models.default.predictor import AUXILIARY_COLUMNS
from sizewright.models.table import as_columns
from sizewright.profiler.planner.candidates import ALLOCATION_COLUMNS, CandidateSet, Key


class _Trial(NamedTuple):
    row: dict[str, Any]
    key: Key
    candidate: int | None
    """Index of the measured candidate; None for another allocation."""
    succeeded: bool


class TrialLog:
    """Trials in the order in which they were told."""

    def __init__(self, candidates: CandidateSet) -> None:
        self.candidates = candidates
        self._trials: list[_Trial] = []

    def __len__(self) -> int:
        return len(self._trials)

    def add(self, allocation: Mapping[str, object], throughput: float | None, more: Mapping[str, object]) -> None:
        """Add a trial. Raises InputError for an invalid throughput, allocation or value."""
        rate = _rate(throughput)
        self.candidates.check(allocation)
        self._check(more)
        status = more.get("status")
        row: dict[str, Any] = {name: cell for name, cell in more.items() if name != "status" or isinstance(status, str)}
        row |= self.candidates.complete(allocation) | {"throughput": rate}
        succeeded = rate > 0 and row.get("status", "ok") == "ok"
        candidate = self.candidates.index_of(allocation)
        self._trials.append(_Trial(row, self.candidates.key(allocation), candidate, succeeded))

    @property
    def frame(self) -> pd.DataFrame:
        """All trials, one row each."""
        return pd.DataFrame([trial.row for trial in self._trials])

    @property
    def successful(self) -> pd.DataFrame:
        """Trials that succeeded, one row each."""
        return pd.DataFrame([trial.row for trial in self._trials if trial.succeeded])

    def distinct(self) -> int:
        """Return the number of distinct allocations, candidates or not, with a successful trial."""
        return len({trial.key for trial in self._trials if trial.succeeded})

    def measured(self, *, succeeded: bool) -> list[int]:
        """Return the candidate of each trial that succeeded, or of each that failed."""
        return [t.candidate for t in self._trials if t.candidate is not None and t.succeeded == succeeded]

    def rates(self) -> dict[int, float]:
        """Return the mean samples/s of each candidate with successful trials."""
        rates = [t.row["throughput"] for t in self._trials if t.candidate is not None and t.succeeded]
        means = pd.Series(rates, dtype=float).groupby(self.measured(succeeded=True)).mean()
        return dict(zip(means.index.tolist(), means.tolist(), strict=True))

    def consecutive_failures(self) -> int:
        """Return how many trials failed since the last successful one."""
        return next((i for i, trial in enumerate(reversed(self._trials)) if trial.succeeded), len(self._trials))

    def _check(self, more: Mapping[str, object]) -> None:
        """Require numbers in columns that models learn from, and constant values of axes that candidates lack."""
        names = [name for name in (*AUXILIARY_COLUMNS, *ALLOCATION_COLUMNS) if name in more]
        numbers = as_columns({name: [more[name]] for name in names}, names)
        axes = {name: number for name, number in numbers.items() if name in ALLOCATION_COLUMNS}
        check_columns({name: number for name, number in axes.items() if not np.isnan(number).all()})
        for name in set(axes) - set(self.candidates.columns):
            before = as_columns([trial.row for trial in self._trials], [name])[name]
            if (np.isfinite(before) & (before != axes[name])).any():
                raise InputError(
                    f"{name} is {more[name]} but was different in earlier trials, and the candidates do not have it.",
                    f"Add {name} to the candidates, or keep it constant.",
                )


def _rate(throughput: float | None) -> float:
    try:
        rate = float("nan") if throughput is None else float(throughput)
    except (TypeError, ValueError):
        raise InputError(f"throughput must be a number, got {throughput!r}.", "Pass samples/s.") from None
    if np.isinf(rate) or rate < 0:
        raise InputError(
            f"throughput must be finite and at least 0, got {rate:g}.", "Pass 0 or NaN for a trial that failed."
        )
    return rate
