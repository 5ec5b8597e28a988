"""What throughput depends on, checked and in logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models.table import Columns, Table, as_columns, ended_well
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]

COUNTS = ("workers", "ps")
SIZES = ("worker_cpu", "ps_cpu", "worker_gpu", "batch_size", "embedding_bytes")
LEAST_ALLOCATIONS = 3
_LEAST = {"workers": 1.0} | dict.fromkeys(
    ("ps", "sync", "worker_gpu", "embedding_bytes", "network_bytes", "worker_memory_bytes", "ps_memory_bytes"), 0.0
)
_NONE = 0.5  # stands for 0 PS or GPUs, which have no logarithm


class Axes(NamedTuple):
    """Columns (n,): logarithms, but for `sync`, which is 1 where workers wait for each other."""

    workers: Floats
    ps: Floats
    worker_cpu: Floats
    ps_cpu: Floats
    worker_gpu: Floats
    batch_size: Floats
    embedding_bytes: Floats
    sync: Floats

    def pick(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Axes:
        """Some of the rows."""
        return Axes(*(column[rows] for column in self))


@dataclass(frozen=True)
class Usual:
    """Which columns the trials told, and what stands for a cell that is empty."""

    told: Mapping[str, float]

    def axes(self, table: Table, *, trials: bool = False) -> Axes:
        """The axes of allocations (or of the trials themselves). Raises InputError where they cannot be used."""
        columns = self.filled(table, trials=trials)
        axes = []
        for name in (*COUNTS, *SIZES):
            known = columns[name] if name in self.told else np.ones_like(columns[name])
            axes.append(np.log(np.where(known > 0, known, _NONE)))
        sync = columns["sync"]
        axes.append(sync if "sync" in self.told else np.zeros_like(sync))
        return Axes(*axes)

    def filled(self, table: Table, *, trials: bool = False) -> Columns:
        """The columns as they are, with what is usual in cells that are empty; NaN where no trial told any."""
        columns = as_columns(table, (*COUNTS, *SIZES, "sync"))
        check_columns(columns)
        if not trials:
            self._agree(columns)
        return {
            name: np.where(np.isfinite(column), column, self.told.get(name, np.nan)) for name, column in columns.items()
        }

    def _agree(self, columns: Mapping[str, Floats]) -> None:
        """What the trials were told apart by must be there, and nothing else may vary."""
        for name, column in columns.items():
            there = np.isfinite(column)
            if name == "embedding_bytes":
                continue  # a matter of the job, so that not telling it means as usual
            lacking = ~there & (columns["ps"] > 0) if name == "ps_cpu" else ~there
            if name in self.told and lacking.any() and self.told.get(f"{name} varies"):
                raise InputError(
                    f"The trials tell {name}, but {int(lacking.sum())} of the allocations asked about do not.",
                    f"Give {name} for all of them.",
                )
            if name not in self.told and there.any() and np.ptp(column[there]) > 0:
                raise InputError(
                    f"The allocations asked about differ in {name}, which the trials do not tell.",
                    f"Add {name} to the trials, or leave it out.",
                )


def usual(table: Table) -> Usual:
    """Median of each column that the trials tell."""
    columns = as_columns(table, (*COUNTS, *SIZES, "sync"))
    check_columns(columns)
    told: dict[str, float] = {}
    for name, column in columns.items():
        there = column[np.isfinite(column)]
        if len(there):
            told[name] = float(np.median(there)) if name != "sync" else float(np.round(there.mean()))
            told[f"{name} varies"] = float(np.ptp(there) > 0)
    return Usual(told)


def check_columns(columns: Mapping[str, Floats]) -> None:
    """Raises InputError for what is no allocation: no workers, negative or infinite numbers."""
    for name, column in columns.items():
        if name in COUNTS and np.isnan(column).any():
            raise InputError(f"Some rows do not tell {name}.", "Give workers and ps in every row.")
        least = _LEAST.get(name, 1e-12)
        outside = np.isinf(column) | (column < least)
        if name == "sync":
            outside |= (column > 0) & (column != 1)
        if len(wrong := column[outside]):
            need = "0 or 1" if name == "sync" else f"finite and {least:g} or more" if name in _LEAST else "above 0"
            raise InputError(
                f"{name} is {wrong[0]:g} in {format_count(len(wrong), 'row')}; it must be {need}.",
                "Correct these rows.",
            )


def checked_rates(own: Floats, given: object = None) -> Floats:
    """The throughput given, or the table's own. Raises InputError where it is infinite, negative or not one a trial."""
    try:
        rates = own if given is None else np.asarray(given, float)
    except (TypeError, ValueError):
        raise InputError("A throughput is not a number.", "Give samples/s, or NaN for a trial that failed.") from None
    if rates.shape != own.shape:
        raise InputError(
            f"Of {format_count(len(own), 'trial')} there are {format_count(rates.size, 'throughput')}.",
            "Give one throughput each.",
        )
    if np.isinf(rates).any() or (rates < 0).any():
        raise InputError("A throughput is infinite or negative.", "Correct it, or leave it empty if the trial failed.")
    return rates


class Measured(NamedTuple):
    """The trials that a model may learn from."""

    axes: Axes
    throughput: Floats
    """samples/s (n,)"""
    relative_se: float
    """Standard error that the trials claim for themselves, as a share: the median of those that tell it."""
    host_speed: Floats
    """(n,), NaN where it is not known."""
    usual: Usual
    rows: NDArray[np.int64]
    """Which rows of the table these are."""


def measured(table: Table, throughput: object = None, *, least: int = LEAST_ALLOCATIONS) -> Measured:
    """The trials that ended well with a throughput above 0, at `least` distinct allocations.

    Raises NotEnoughDataError where there are fewer, and InputError for an infinite or negative throughput.
    """
    columns = as_columns(table, ("throughput", "throughput_se", "host_speed"))
    rates = checked_rates(columns["throughput"], throughput)
    told = usual(table) if len(rates) else Usual({})
    good = np.flatnonzero(ended_well(table) & np.isfinite(rates) & (rates > 0)) if len(rates) else np.empty(0, int)
    if not len(good):
        raise NotEnoughDataError(
            f"None of {format_count(len(rates), 'trial')} ended well with a throughput above 0.", least
        )
    axes = told.axes(table, trials=True).pick(good)
    distinct = count_distinct(axes)
    if distinct < least:
        raise NotEnoughDataError(
            f"{format_count(len(good), 'trial')} at {format_count(distinct, 'distinct allocation')} "
            f"{'is' if len(good) == 1 else 'are'} too few for a curve.",
            least - distinct,
        )
    claimed = columns["throughput_se"][good] / rates[good]
    claimed = claimed[np.isfinite(claimed) & (claimed >= 0)]
    usual_se = float(np.median(claimed)) if len(claimed) else 0.0
    return Measured(axes, rates[good], usual_se, columns["host_speed"][good], told, good)


def count_distinct(axes: Axes) -> int:
    """How many different allocations there are; the size of the tables does not make another."""
    return len(np.unique(allocations_of(axes), axis=0))


def allocations_of(axes: Axes) -> Floats:
    """Columns (n, a) by which allocations differ."""
    return np.column_stack([column for name, column in axes._asdict().items() if name != "embedding_bytes"]).round(9)
