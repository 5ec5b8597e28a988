"""The allocations that a planner may choose from: checked, told apart, and priced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.models.axes import COUNTS, SIZES, check_columns
from sizewright.models.table import Columns, as_columns, known
from sizewright.spec import Prices
from sizewright.spec.objective import REPLICA_HOUR, hourly_price

Floats = NDArray[np.float64]

# What an allocation is; measurements that a table may also hold are not.
ALLOCATION_COLUMNS = tuple(name for name in (*COUNTS, *SIZES, "sync") if name != "embedding_bytes")
_MEMORY = ("worker_memory_bytes", "ps_memory_bytes")
_KEPT = (*ALLOCATION_COLUMNS, "network_gbps", "workers_per_host", *_MEMORY)
_WHOLE = (*COUNTS, "batch_size", "worker_gpu")
_APART = 2.0
Key = tuple[float | None, ...]


class AllocationRow(TypedDict, total=False):
    """An allocation as a row of the trial table: those of the columns that the candidates have.

    Cores and bytes are of one replica, as is `worker_gpu`, a number of GPUs; `workers_per_host` share its link.
    """

    workers: int
    ps: int
    worker_cpu: float
    ps_cpu: float
    worker_gpu: int
    batch_size: int
    sync: str
    worker_memory_bytes: float
    ps_memory_bytes: float
    network_gbps: float
    workers_per_host: float


class Candidates:
    """Distinct allocations (n) in the order in which they came; of those that differ in memory alone, the first.

    Raises InputError where they are none.
    """

    def __init__(self, frame: pd.DataFrame, prices: Prices | Mapping[str, float] | None = None) -> None:
        if not isinstance(frame, pd.DataFrame) or not frame.columns.is_unique:
            raise InputError("The candidates are no table with a name for each column.", "Give a pandas DataFrame.")
        missing = [name for name in COUNTS if name not in frame]
        if missing or not len(frame):
            what = f"lack {' and '.join(missing)}" if missing else "are none"
            raise InputError(f"The candidates {what}.", "Give a table with workers and ps, a row for each allocation.")
        self.columns = [name for name in ALLOCATION_COLUMNS if name in frame]
        frame = _numbers(frame, self.columns)
        first: dict[Key, int] = {}
        for i, key in enumerate(_keys(as_columns(frame, self.columns))):
            first.setdefault(key, i)
        told = [name for name in frame if name in _KEPT]
        self.frame = frame.iloc[list(first.values())][told].reset_index(drop=True)
        check_columns(as_columns(self.frame, [name for name in _KEPT if name in told]))
        self.hourly_price = table_price(self.frame, prices)
        self._places = {key: i for i, key in enumerate(first)}

    def __len__(self) -> int:
        return len(self.frame)

    def allocation(self, i: int) -> AllocationRow:
        """One candidate with plain numbers."""
        cells: dict[str, Any] = {str(name): column.iloc[i] for name, column in self.frame.items()}
        return cast("AllocationRow", {name: _native(name, cell) for name, cell in cells.items()})

    def check(self, allocation: Mapping[str, object]) -> None:
        """Raises InputError for what is no allocation, or tells an axis that the candidates do not."""
        strange = [name for name in ALLOCATION_COLUMNS if name not in self.columns and name in allocation]
        if strange:
            raise InputError(
                f"The allocation tells {' and '.join(strange)}, which the candidates do not.", "Leave it out."
            )
        whole = {name: [cell] for name, cell in self.whole(allocation).items()}
        check_columns(as_columns(whole, self.columns))

    def place(self, allocation: Mapping[str, object]) -> int | None:
        """Which candidate an allocation is; None if it is another."""
        return self._places.get(self.key(allocation))

    def key(self, allocation: Mapping[str, object]) -> Key:
        """What an allocation is told apart by. Raises InputError where it lacks an axis by which candidates differ."""
        lacks = [name for name in self.columns if name not in allocation and self.frame[name].nunique() > 1]
        if lacks:
            raise InputError(
                f"The allocation does not tell {' and '.join(lacks)}, by which the candidates differ.",
                "Tell it as ask() gave it.",
            )
        return _keys(as_columns([self.whole(allocation)], self.columns))[0]

    def whole(self, allocation: Mapping[str, object]) -> dict[str, Any]:
        """The allocation with what all candidates have in common, in plain numbers."""
        cells: dict[str, Any] = {**self.allocation(0), **allocation}
        axes = [name for name in self.columns if name != "sync"]
        numbers = as_columns({name: [cells[name]] for name in axes}, axes)
        return cells | {name: _native(name, number[0]) for name, number in numbers.items()}

    def spread(self) -> Floats:
        """Where the candidates lie (n, a): logarithms of the axes that vary, each from 0 to 1."""
        columns = as_columns(self.frame, self.columns)
        places = log_places(columns)
        width = np.ptp(places, axis=0)
        scaled: Floats = ((places - places.min(axis=0)) / np.where(width > 0, width, 1.0))[:, width > 0]
        return scaled

    def near(self, measured: pd.DataFrame) -> NDArray[np.bool_]:
        """Which candidates lie within twice the range that was measured, on every axis."""
        inside = np.ones(len(self), bool)
        there, here = as_columns(measured, self.columns), as_columns(self.frame, self.columns)
        for name, column in here.items():
            low, high = np.nanmin(there[name], initial=np.inf), np.nanmax(there[name], initial=-np.inf)
            if low <= high and name != "sync":
                inside &= ~((column < low / _APART - 1e-9) | (column > high * _APART + 1e-9))
        return inside


def _keys(columns: Columns) -> list[Key]:
    """One for each row: numbers, None where there is none."""
    rounded = np.column_stack(list(columns.values())).round(9)
    return [tuple(None if cell != cell else cell for cell in row) for row in rounded.tolist()]


def _numbers(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The frame with its axes as numbers. Raises InputError for cells that are none, are missing, or are not whole."""
    columns_as_numbers: dict[str, Floats] = {}
    for name in columns:
        if name == "sync":
            continue
        numbers = np.asarray(pd.to_numeric(frame[name], errors="coerce").astype(float), np.float64)
        needed = numbers if name != "ps_cpu" else numbers[as_columns(frame, ["ps"])["ps"] > 0]  # without PS, no cores
        missing = int(np.isnan(needed).sum())
        if 0 < missing < len(needed) or (missing and name in COUNTS):
            raise InputError(f"{missing} of the candidates do not tell {name}.", "Give a number in each row.")
        if name in _WHOLE and (np.nan_to_num(numbers) % 1 != 0).any():
            raise InputError(f"{name} is not a whole number in some candidates.", "Round it.")
        columns_as_numbers[name] = numbers
    check_columns(columns_as_numbers)
    return frame.assign(**columns_as_numbers)


def log_places(columns: Columns) -> Floats:
    """Axes as coordinates (n, a): logarithms, with 0 PS at one half, and modes as they are."""
    logs = []
    for name, column in columns.items():
        least = 0.5 if name in ("ps", "worker_gpu") else 1e-9
        logs.append(known(column, 0.0) if name == "sync" else np.log(np.maximum(known(column, 1.0), least)))
    return np.column_stack(logs)


def table_price(frame: pd.DataFrame, prices: Prices | Mapping[str, float] | None) -> Floats:
    """Return the currency per hour of each allocation (n,): cores, memory and GPUs, or 1 a replica where only counts
    are known. Workers that tell their GPUs but no cores are priced by the GPUs alone."""
    given = prices if isinstance(prices, Prices) else _prices(prices or {})
    columns = as_columns(frame, (*COUNTS, *SIZES, *_MEMORY))
    workers, ps = columns["workers"], columns["ps"]
    gpus = known(columns["worker_gpu"], 0.0)
    counts_only = all(np.isnan(columns[name]).all() for name in ("worker_cpu", "ps_cpu")) and not gpus.any()
    if counts_only and prices is None:
        given = given.model_copy(update={"core_hour": REPLICA_HOUR})
    of_worker = np.where((gpus > 0) & np.isnan(columns["worker_cpu"]), 0.0, known(columns["worker_cpu"], 1.0))
    memory = [known(columns[name], 0.0) for name in _MEMORY]
    return hourly_price(
        given,
        cores=workers * of_worker + ps * known(columns["ps_cpu"], 1.0),
        memory_bytes=workers * memory[0] + ps * memory[1],
        gpus=workers * gpus,
    )


def _prices(told: Mapping[str, float]) -> Prices:
    try:
        return Prices.model_validate(dict(told))
    except (TypeError, ValueError):  # of what is no mapping, or pydantic's
        raise InputError(
            f"Prices are numbers from 0 up of {', '.join(Prices.model_fields)}, not {told!r}.", "Correct them."
        ) from None


def _native(name: str, cell: Any) -> Any:
    """A plain number; counts are whole."""
    if name in _WHOLE and cell == cell:
        return int(cell)
    return cell.item() if hasattr(cell, "item") else cell
