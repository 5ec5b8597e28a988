"""The axes that throughput depends on: checked columns of tables, in logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.formatting import format_count
from sizewright.models.table import Columns, Table, as_columns, successful

Floats = NDArray[np.float64]

COUNTS = ("workers", "ps")
SIZES = ("worker_cpu", "ps_cpu", "worker_gpu", "batch_size", "embedding_bytes")
MIN_ALLOCATIONS = 3
EXTRAPOLATION_SD = 0.3
"""Error of a predicted curve outside the measured ranges: standard deviation of the log per e-fold of an axis."""
_LOWER_BOUNDS = {"workers": 1.0} | dict.fromkeys(
    (
        "ps",
        "sync",
        "worker_gpu",
        "loaders",
        "embedding_bytes",
        "network_bytes",
        "worker_memory_bytes",
        "ps_memory_bytes",
    ),
    0.0,
)
_ZERO = 0.5  # stands for 0 PS or GPUs, which have no logarithm


class Axes(NamedTuple):
    """Logarithms of columns (n,), except `sync`, which is 1 where workers wait for each other."""

    workers: Floats
    ps: Floats
    worker_cpu: Floats
    ps_cpu: Floats
    worker_gpu: Floats
    batch_size: Floats
    embedding_bytes: Floats
    sync: Floats

    def pick(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Axes:
        """Return some of the rows."""
        return Axes(*(column[rows] for column in self))


@dataclass(frozen=True)
class Imputer:
    """The columns that trials had, and the value that fills empty cells of each: the median."""

    medians: Mapping[str, float]
    varying: frozenset[str] = frozenset()
    """Columns in which the trials differ."""

    def axes(self, table: Table, *, trials: bool = False) -> Axes:
        """Return the axes of allocations (or of the trials themselves). Raises InputError where they cannot be used."""
        columns = self.filled(table, trials=trials)
        axes = []
        for name in (*COUNTS, *SIZES):
            known = columns[name] if name in self.medians else np.ones_like(columns[name])
            axes.append(np.log(np.where(known > 0, known, _ZERO)))
        sync = columns["sync"]
        axes.append(sync if "sync" in self.medians else np.zeros_like(sync))
        return Axes(*axes)

    def filled(self, table: Table, *, trials: bool = False) -> Columns:
        """Return the columns with empty cells filled; NaN where no trial had a value.

        Raises InputError where allocations do not fit the trials.
        """
        columns = as_columns(table, (*COUNTS, *SIZES, "sync"))
        check_columns(columns)
        if not trials:
            self._check_agreement(columns)
        return {
            name: np.where(np.isfinite(column), column, self.medians.get(name, np.nan))
            for name, column in columns.items()
        }

    def _check_agreement(self, columns: Mapping[str, Floats]) -> None:
        """Raise InputError unless allocations have the columns in which the trials differ, and differ in no others."""
        for name, column in columns.items():
            if name == "embedding_bytes":
                continue  # a property of the job, so an empty cell means its median
            present = np.isfinite(column)
            missing = ~present & (columns["ps"] > 0) if name == "ps_cpu" else ~present
            if name in self.varying and missing.any():
                raise InputError(
                    f"The trials have {name}, but {format_count(int(missing.sum()), 'allocation')} to predict "
                    f"{'does' if missing.sum() == 1 else 'do'} not.",
                    f"Give {name} for all of them.",
                )
            if name not in self.medians and present.any() and np.ptp(column[present]) > 0:
                raise InputError(
                    f"The allocations to predict differ in {name}, which no trial has.",
                    f"Add {name} to the trials, or leave it out.",
                )


def column_imputer(table: Table) -> Imputer:
    """Return an imputer with the median of each column of the trials."""
    columns = as_columns(table, (*COUNTS, *SIZES, "sync"))
    check_columns(columns)
    present = {name: column[np.isfinite(column)] for name, column in columns.items()}
    present = {name: values for name, values in present.items() if len(values)}
    return Imputer(
        medians={
            name: float(np.round(values.mean())) if name == "sync" else float(np.median(values))
            for name, values in present.items()
        },
        varying=frozenset(name for name, values in present.items() if np.ptp(values) > 0),
    )


def check_columns(columns: Mapping[str, Floats]) -> None:
    """Raise InputError for rows without workers or PS, and for negative or infinite numbers."""
    for name, column in columns.items():
        if name in COUNTS and np.isnan(column).any():
            raise InputError(f"Some rows have no {name}.", "Give workers and ps in every row.")
        lower = _LOWER_BOUNDS.get(name, 1e-12)
        outside = np.isinf(column) | (column < lower)
        if name == "sync":
            outside |= (column > 0) & (column != 1)
        if len(invalid := column[outside]):
            need = (
                "0 or 1" if name == "sync" else f"finite and {lower:g} or more" if name in _LOWER_BOUNDS else "above 0"
            )
            raise InputError(
                f"{name} is {invalid[0]:g} in {format_count(len(invalid), 'row')}; it must be {need}.",
                "Correct these rows.",
            )


def _checked_rates(column: Floats, throughput: object = None) -> Floats:
    """Return `throughput` (n,), by default the column of the table.

    Raises InputError for infinite or negative numbers, or where there is not one for each trial.
    """
    try:
        rates = column if throughput is None else np.asarray(throughput, float)
    except (TypeError, ValueError):
        raise InputError("A throughput is not a number.", "Give samples/s, or NaN for a trial that failed.") from None
    if rates.shape != column.shape:
        raise InputError(
            f"There are {format_count(len(column), 'trial')}, but {format_count(rates.size, 'throughput')}.",
            "Give one throughput for each trial.",
        )
    if np.isinf(rates).any() or (rates < 0).any():
        raise InputError("A throughput is infinite or negative.", "Correct it, or leave it empty if the trial failed.")
    return rates


class TrainingData(NamedTuple):
    """The trials that a model can learn from."""

    axes: Axes
    throughput: Floats
    """Samples/s (n,)."""
    relative_se: float
    """Relative standard error that the trials report: the median of those that report one."""
    host_speed: Floats
    """(n,), NaN where unknown."""
    imputer: Imputer
    rows: NDArray[np.int64]
    """The rows of the table (n,) that these trials are."""


def prepare_training_data(
    table: Table, throughput: object = None, *, min_allocations: int = MIN_ALLOCATIONS
) -> TrainingData:
    """Return the successful trials with a throughput above 0.

    Raises NotEnoughDataError where they have fewer than `min_allocations` distinct allocations, and InputError for an
    infinite or negative throughput.
    """
    columns = as_columns(table, ("throughput", "throughput_se", "host_speed"))
    rates = _checked_rates(columns["throughput"], throughput)
    imputer = column_imputer(table) if len(rates) else Imputer({})
    usable = np.flatnonzero(successful(table) & np.isfinite(rates) & (rates > 0)) if len(rates) else np.empty(0, int)
    if not len(usable):
        raise NotEnoughDataError(
            f"None of {format_count(len(rates), 'trial')} succeeded with a throughput above 0.", min_allocations
        )
    axes = imputer.axes(table, trials=True).pick(usable)
    distinct = count_distinct(axes)
    if distinct < min_allocations:
        raise NotEnoughDataError(
            f"{format_count(len(usable), 'trial')} at {format_count(distinct, 'distinct allocation')} "
            f"{'is' if len(usable) == 1 else 'are'} too few for a curve.",
            min_allocations - distinct,
        )
    relative_se = columns["throughput_se"][usable] / rates[usable]
    relative_se = relative_se[np.isfinite(relative_se) & (relative_se >= 0)]
    median_se = float(np.median(relative_se)) if len(relative_se) else 0.0
    return TrainingData(axes, rates[usable], median_se, columns["host_speed"][usable], imputer, usable)


def count_distinct(axes: Axes) -> int:
    """Return the number of distinct allocations; the size of the tables does not distinguish them."""
    return len(np.unique(allocations_of(axes), axis=0))


def allocations_of(axes: Axes) -> Floats:
    """Return the columns (n, a) that distinguish allocations."""
    return np.column_stack([column for name, column in axes._asdict().items() if name != "embedding_bytes"]).round(9)


def e_folds_outside(columns: Columns, ranges: Mapping[str, tuple[float, float]]) -> Floats:
    """Return how far rows (n,) lie outside the ranges of axes, in e-folds summed over the axes; unknown cells add 0."""
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 PS lies within a range from 0
        outside = [
            np.maximum(np.log(low / columns[axis]), 0.0) + np.maximum(np.log(columns[axis] / high), 0.0)
            for axis, (low, high) in ranges.items()
        ]
    size = len(next(iter(columns.values())))
    return np.asarray(np.nansum(outside, axis=0)) if outside else np.zeros(size)
