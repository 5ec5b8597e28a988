"""The trial table as plain columns, so that fitting and predicting do not need pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.spec import Allocation, Job, Role

if TYPE_CHECKING:
    from typing import TypeAlias

    import pandas as pd

Column = NDArray[np.float64]
Columns = dict[str, Column]
Table: TypeAlias = (
    "pd.DataFrame | pd.Series | Mapping[str, object] | Sequence[Trial] | Sequence[Allocation] "
    "| Sequence[Mapping[str, object]]"
)
"""Rows of the trial table: a data frame or one of its rows, a mapping of columns or of cells, or a sequence of rows."""

ALLOCATION_AXES = ("workers", "ps", "worker_cpu", "ps_cpu", "batch_size")
AXES = (*ALLOCATION_AXES, "embedding_bytes")
QUOTA_COLUMNS = ("workers", "ps", "worker_cpu", "throttled_s", "duration_s")
"""Columns that `stopped_at_quota` needs."""
_STOPPED = 0.1
_MODES = {"async": 0.0, "sync": 1.0}


def as_columns(table: Table, names: Sequence[str] = AXES) -> Columns:
    """Return the named columns as float arrays (n,); unknown cells are NaN, and `sync` is 1 for sync and 0 for async.

    A single allocation, as a mapping of numbers, is one row.
    Raises InputError where a cell is not a number, or the argument is not a table.
    """
    source = _as_table(table)
    if _is_columnar(source):
        size = _length(source)
        return {name: _floats(name, source[name]) if name in source else np.full(size, np.nan) for name in names}
    rows = [_row(item) for item in source]
    return {name: np.array([_number(name, row.get(name)) for row in rows], float) for name in names}


def _as_table(table: Any) -> Any:
    """Return the table, and a single row as a list. Raises InputError for anything else."""
    if hasattr(table, "to_dict") and not hasattr(table, "columns"):  # a row of a data frame
        return [table.to_dict()]
    cells = table.values() if isinstance(table, Mapping) else ()
    if cells and all(isinstance(cell, str) or not hasattr(cell, "__len__") for cell in cells):
        return [table]
    if not (_is_columnar(table) or isinstance(table, Sequence)) or isinstance(table, str):
        raise InputError("Trials and allocations need named columns.", "Give a data frame, or a mapping of columns.")
    return table


def _length(table: Any) -> int:
    if not isinstance(table, Mapping):
        return len(table)
    lengths = {len(column) for column in table.values()}
    if len(lengths) > 1:
        raise InputError(
            f"The columns have {min(lengths)} to {max(lengths)} rows.", "Give the same number of rows in each column."
        )
    return max(lengths, default=0)


def _floats(name: str, cells: Any) -> Column:
    if name == "sync":
        return np.array([_number(name, cell) for cell in cells], float)
    try:
        return cells.to_numpy(dtype=float, na_value=np.nan) if hasattr(cells, "to_numpy") else np.asarray(cells, float)
    except (TypeError, ValueError):
        raise InputError(f"The column {name} has a cell that is not a number.", "Correct it.") from None


def successful(table: Table) -> NDArray[np.bool_]:
    """Return which rows (n,) succeeded: their status is `ok` or empty."""
    source = _as_table(table)
    if _is_columnar(source):
        statuses = list(source["status"]) if "status" in source else [None] * _length(source)
    else:
        statuses = [_row(item).get("status") for item in source]
    return np.array([status == "ok" or not isinstance(status, str) for status in statuses], bool)


def _is_columnar(table: Any) -> bool:
    return isinstance(table, Mapping) or hasattr(table, "columns")


def _row(item: Any) -> dict[str, Any]:
    if isinstance(item, Allocation):
        return {
            "workers": item.replicas("worker"),
            "ps": item.replicas("ps"),
            "worker_cpu": _cores_of_one(item, "worker"),
            "ps_cpu": _cores_of_one(item, "ps"),
            "worker_gpu": item.gpus("worker") / item.replicas("worker") if item.replicas("worker") else None,
            "batch_size": item.batch_size,
            "loaders": item.loaders,
        }
    return vars(item) if isinstance(item, Trial) else dict(item)


def _cores_of_one(allocation: Allocation, role: Role) -> float | None:
    replicas = allocation.replicas(role)
    return allocation.cores(role) / replicas if replicas else None


def _number(name: str, value: Any) -> float:
    if isinstance(value, str):
        if name == "sync" and value in _MODES:
            return _MODES[value]
        expected = "sync or async" if name == "sync" else "a number"
        raise InputError(f"{name} is {value!r}, which is not {expected}.", "Correct it.")
    if isinstance(value, Real | np.bool_):
        return float(value)
    if value is None or type(value).__name__ == "NAType" or value != value:  # pd.NA has no truth value
        return float("nan")
    raise InputError(f"{name} is {value!r}, which is not a number.", "Correct it.")


def stopped_at_quota(columns: Columns) -> NDArray[np.bool_]:
    """Return which trials (n,) had replicas that their CPU quota stopped for a tenth of the time of each core."""
    replicas = filled(columns["workers"], 1.0) + filled(columns["ps"], 0.0)
    core_s = columns["duration_s"] * replicas * np.maximum(filled(columns["worker_cpu"], 1.0), 1.0)
    return np.asarray(filled(columns["throttled_s"] / core_s, 0.0) >= _STOPPED)


def batch_sizes(job: Job, workers: Column) -> Column:
    """Return the batch per worker (n,) of a job with so many workers (n,); an unknown number counts as one."""
    if job.training.global_batch_size is None:
        return np.full_like(workers, float(job.training.batch_size))
    counts, index = np.unique(np.nan_to_num(workers, nan=1.0), return_inverse=True)
    return np.array([float(job.batch_size_for(int(count))) for count in counts])[index]


def filled(column: Column, default: float | Column) -> Column:
    """Return the column with `default`, a number or a column, in place of NaN."""
    return np.where(np.isnan(column), default, column)
