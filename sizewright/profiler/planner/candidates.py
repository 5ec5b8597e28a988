"""The allocations that a planner may choose from: checked, distinct, and priced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.models.axes import COUNTS, SIZES, check_columns
from sizewright.models.table import Columns, as_columns, filled
from sizewright.spec import Prices
from sizewright.spec.objective import REPLICA_HOUR, hourly_price

Floats = NDArray[np.float64]

# The columns that identify an allocation. A table may contain others, such as measurements.
ALLOCATION_COLUMNS = (*(name for name in (*COUNTS, *SIZES) if name != "embedding_bytes"), "loaders", "sync")
_MEMORY = ("worker_memory_bytes", "ps_memory_bytes")
_KEPT_COLUMNS = (*ALLOCATION_COLUMNS, "network_gbps", "workers_per_host", *_MEMORY)
_INTEGER_COLUMNS = (*COUNTS, "batch_size", "worker_gpu", "loaders")
_RANGE_FACTOR = 2.0
Key = tuple[float | None, ...]


class AllocationRow(TypedDict, total=False):
    """An allocation as a row of the trial table, with the columns that the candidates have.

    Cores, bytes and the number of GPUs (`worker_gpu`) are of one replica, and `loaders` are the loader processes of one
    worker; `workers_per_host` share the link of a host.
    """

    workers: int
    ps: int
    worker_cpu: float
    ps_cpu: float
    worker_gpu: int
    batch_size: int
    loaders: int
    sync: str
    worker_memory_bytes: float
    ps_memory_bytes: float
    network_gbps: float
    workers_per_host: float


class CandidateSet:
    """Distinct allocations (n) in their original order; of those that differ in memory alone, the first.

    Raises InputError if the table contains no valid allocations.
    """

    def __init__(self, frame: pd.DataFrame, prices: Prices | Mapping[str, float] | None = None) -> None:
        if not isinstance(frame, pd.DataFrame) or not frame.columns.is_unique:
            raise InputError("The candidates are not a table with unique column names.", "Pass a pandas DataFrame.")
        missing = [name for name in COUNTS if name not in frame]
        if missing or not len(frame):
            fault = f"lacks {' and '.join(missing)}" if missing else "is empty"
            raise InputError(
                f"The table of candidates {fault}.", "Pass a table with workers and ps, one row per allocation."
            )
        self.columns = [name for name in ALLOCATION_COLUMNS if name in frame]
        frame = _numbers(frame, self.columns)
        first: dict[Key, int] = {}
        for i, key in enumerate(_keys(as_columns(frame, self.columns))):
            first.setdefault(key, i)
        kept = [name for name in frame if name in _KEPT_COLUMNS]
        self.frame = frame.iloc[list(first.values())][kept].reset_index(drop=True)
        check_columns(as_columns(self.frame, [name for name in _KEPT_COLUMNS if name in kept]))
        self.hourly_price = table_price(self.frame, prices)
        self._index = {key: i for i, key in enumerate(first)}

    def __len__(self) -> int:
        return len(self.frame)

    def allocation(self, i: int) -> AllocationRow:
        """Return one candidate as plain numbers."""
        cells: dict[str, Any] = {str(name): column.iloc[i] for name, column in self.frame.items()}
        return cast("AllocationRow", {name: _native(name, cell) for name, cell in cells.items()})

    def check(self, allocation: Mapping[str, object]) -> None:
        """Raise InputError for an invalid allocation, or one with an axis that the candidates do not have."""
        unknown = [name for name in ALLOCATION_COLUMNS if name not in self.columns and name in allocation]
        if unknown:
            raise InputError(f"The allocation has {' and '.join(unknown)}, the candidates do not.", "Leave it out.")
        row = {name: [cell] for name, cell in self.complete(allocation).items()}
        check_columns(as_columns(row, self.columns))

    def index_of(self, allocation: Mapping[str, object]) -> int | None:
        """Return the index of an allocation among the candidates, or None if it is not one of them."""
        return self._index.get(self.key(allocation))

    def key(self, allocation: Mapping[str, object]) -> Key:
        """Return the values that identify an allocation.

        Raises InputError if it lacks an axis in which the candidates differ.
        """
        missing = [name for name in self.columns if name not in allocation and self.frame[name].nunique() > 1]
        if missing:
            raise InputError(
                f"The allocation lacks {' and '.join(missing)}, in which the candidates differ.",
                "Pass the allocation that ask() returned.",
            )
        return _keys(as_columns([self.complete(allocation)], self.columns))[0]

    def complete(self, allocation: Mapping[str, object]) -> dict[str, Any]:
        """Return the allocation as plain numbers, with the values that all candidates have in common."""
        cells: dict[str, Any] = {**self.allocation(0), **allocation}
        axes = [name for name in self.columns if name != "sync"]
        numbers = as_columns({name: [cells[name]] for name in axes}, axes)
        return cells | {name: _native(name, number[0]) for name, number in numbers.items()}

    def scaled_coordinates(self) -> Floats:
        """Return coordinates (n, a) of the candidates: logarithms of the axes that vary, scaled to 0 to 1."""
        points = log_coordinates(as_columns(self.frame, self.columns))
        width = np.ptp(points, axis=0)
        scaled: Floats = ((points - points.min(axis=0)) / np.where(width > 0, width, 1.0))[:, width > 0]
        return scaled

    def near(self, measured: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which candidates (n,) lie within twice the measured range on every axis."""
        inside = np.ones(len(self), bool)
        measured_columns = as_columns(measured, self.columns)
        for name, column in as_columns(self.frame, self.columns).items():
            low = np.nanmin(measured_columns[name], initial=np.inf)
            high = np.nanmax(measured_columns[name], initial=-np.inf)
            if low <= high and name != "sync":
                inside &= ~((column < low / _RANGE_FACTOR - 1e-9) | (column > high * _RANGE_FACTOR + 1e-9))
        return inside


def _keys(columns: Columns) -> list[Key]:
    """Return one key for each row: numbers, or None for missing values."""
    rounded = np.column_stack(list(columns.values())).round(9)
    return [tuple(None if cell != cell else cell for cell in row) for row in rounded.tolist()]


def _numbers(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the frame with its axes as numbers.

    Raises InputError for values that are not numbers, are missing, or are not integers where they must be.
    """
    columns_as_numbers: dict[str, Floats] = {}
    for name in columns:
        if name == "sync":
            continue
        numbers = np.asarray(pd.to_numeric(frame[name], errors="coerce").astype(float), np.float64)
        needed = numbers if name != "ps_cpu" else numbers[as_columns(frame, ["ps"])["ps"] > 0]  # without PS, no cores
        missing = int(np.isnan(needed).sum())
        if 0 < missing < len(needed) or (missing and name in COUNTS):
            raise InputError(f"{missing} of the candidates lack {name}.", "Give a number in each row.")
        if name in _INTEGER_COLUMNS and (np.nan_to_num(numbers) % 1 != 0).any():
            raise InputError(f"{name} is not a whole number in some candidates.", "Round it.")
        columns_as_numbers[name] = numbers
    check_columns(columns_as_numbers)
    return frame.assign(**columns_as_numbers)


def log_coordinates(columns: Columns) -> Floats:
    """Return axes as coordinates (n, a): logarithms, with 0 PS at one half, and the mode unchanged."""
    logs = []
    for name, column in columns.items():
        minimum = 0.5 if name in ("ps", "worker_gpu", "loaders") else 1e-9
        logs.append(filled(column, 0.0) if name == "sync" else np.log(np.maximum(filled(column, 1.0), minimum)))
    return np.column_stack(logs)


def table_price(frame: pd.DataFrame, prices: Prices | Mapping[str, float] | None) -> Floats:
    """Return the price per hour of each allocation (n,) for its cores, memory and GPUs.

    Where only counts are known, a replica costs 1 per hour. Workers with GPUs but without a number of cores are priced
    by the GPUs alone.
    """
    checked = prices if isinstance(prices, Prices) else _check_prices(prices or {})
    columns = as_columns(frame, (*COUNTS, *SIZES, *_MEMORY))
    workers, ps = columns["workers"], columns["ps"]
    gpus = filled(columns["worker_gpu"], 0.0)
    counts_only = all(np.isnan(columns[name]).all() for name in ("worker_cpu", "ps_cpu")) and not gpus.any()
    if counts_only and prices is None:
        checked = checked.model_copy(update={"core_hour": REPLICA_HOUR})
    worker_cores = np.where((gpus > 0) & np.isnan(columns["worker_cpu"]), 0.0, filled(columns["worker_cpu"], 1.0))
    worker_bytes, ps_bytes = (filled(columns[name], 0.0) for name in _MEMORY)
    return hourly_price(
        checked,
        cores=workers * worker_cores + ps * filled(columns["ps_cpu"], 1.0),
        memory_bytes=workers * worker_bytes + ps * ps_bytes,
        gpus=workers * gpus,
    )


def _check_prices(prices: Mapping[str, float]) -> Prices:
    try:
        return Prices.model_validate(dict(prices))
    except (TypeError, ValueError):  # the argument is not a mapping, or pydantic rejects it
        raise InputError(
            f"prices must map {', '.join(Prices.model_fields)} to numbers of at least 0, got {prices!r}.",
            "Correct them.",
        ) from None


def _native(name: str, cell: Any) -> Any:
    """Return a cell as a plain number; counts as integers."""
    if name in _INTEGER_COLUMNS and cell == cell:
        return int(cell)
    return cell.item() if hasattr(cell, "item") else cell
