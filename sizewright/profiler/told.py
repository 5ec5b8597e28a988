"""What a planner was told of trials: checked, and of which candidates it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sizewright.errors import InputError
from sizewright.models.axes import check_columns
from sizewright.models.default import LEARNED_FROM
from sizewright.models.table import as_columns
from sizewright.profiler.candidates import ALLOCATION_COLUMNS, Candidates, Key


class _Trial(NamedTuple):
    row: dict[str, Any]
    key: Key
    place: int | None
    """Which candidate it was of."""
    well: bool


class Told:
    """Trials in the order in which they came."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self._trials: list[_Trial] = []

    def __len__(self) -> int:
        return len(self._trials)

    def add(self, allocation: Mapping[str, object], throughput: float | None, more: Mapping[str, object]) -> None:
        """One more. Raises InputError for what is no throughput, no allocation of this kind, or no number."""
        rate = _rate(throughput)
        self.candidates.check(allocation)
        self._check(more)
        status = more.get("status")
        row: dict[str, Any] = {name: cell for name, cell in more.items() if name != "status" or isinstance(status, str)}
        row |= self.candidates.whole(allocation) | {"throughput": rate}
        key, place = self.candidates.key(allocation), self.candidates.place(allocation)
        self._trials.append(_Trial(row, key, place, rate > 0 and row.get("status", "ok") == "ok"))

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each."""
        return pd.DataFrame([trial.row for trial in self._trials])

    @property
    def good(self) -> pd.DataFrame:
        """Those that ended well."""
        return pd.DataFrame([trial.row for trial in self._trials if trial.well])

    def distinct(self) -> int:
        """Of how many allocations trials ended well, candidates or not."""
        return len({trial.key for trial in self._trials if trial.well})

    def places(self, *, well: bool) -> list[int]:
        """Which candidates were measured, once for each trial that ended well, or did not."""
        return [trial.place for trial in self._trials if trial.place is not None and trial.well == well]

    def rates(self) -> dict[int, float]:
        """Mean samples/s of the candidates that were measured and ended well."""
        rates = [trial.row["throughput"] for trial in self._trials if trial.place is not None and trial.well]
        found = pd.Series(rates, dtype=float).groupby(self.places(well=True)).mean()
        return dict(zip(found.index.tolist(), found.tolist(), strict=True))

    def failures_in_a_row(self) -> int:
        """How many trials failed since the last that ended well."""
        return next((i for i, trial in enumerate(reversed(self._trials)) if trial.well), len(self._trials))

    def _check(self, more: Mapping[str, object]) -> None:
        """What models learn from must be numbers, and an axis that candidates do not tell must stay as it is."""
        names = [name for name in (*LEARNED_FROM, *ALLOCATION_COLUMNS) if name in more]
        numbers = as_columns({name: [more[name]] for name in names}, names)
        axes = {name: number for name, number in numbers.items() if name in ALLOCATION_COLUMNS}
        check_columns({name: number for name, number in axes.items() if not np.isnan(number).all()})
        for name in set(axes) - set(self.candidates.columns):
            before = as_columns([trial.row for trial in self._trials], [name])[name]
            if (np.isfinite(before) & (before != axes[name])).any():
                raise InputError(
                    f"{name} is {more[name]} and was another before, but the candidates do not tell it.",
                    f"Add {name} to the candidates, or keep it as it is.",
                )


def _rate(throughput: float | None) -> float:
    try:
        rate = float("nan") if throughput is None else float(throughput)
    except (TypeError, ValueError):
        raise InputError(f"A throughput of {throughput!r} is none.", "Tell samples/s.") from None
    if np.isinf(rate) or rate < 0:
        raise InputError(f"A throughput of {rate:g} is none.", "Tell 0 or NaN for a trial that failed.")
    return rate
