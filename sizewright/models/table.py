"""The trial table as plain columns, so that fitting and predicting need no data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.errors import InputError
from sizewright.spec import Allocation, Role

if TYPE_CHECKING:
    from typing import TypeAlias

    import pandas as pd

Column = NDArray[np.float64]
Columns = dict[str, Column]
Table: TypeAlias = (
    "pd.DataFrame | pd.Series | Mapping[str, object] | Sequence[Trial] | Sequence[Allocation] "
    "| Sequence[Mapping[str, object]]"
)
"""Rows of the trial table: a data frame or a row of one, columns or one row by name, or a sequence of rows."""

ALLOCATION_AXES = ("workers", "ps", "worker_cpu", "ps_cpu", "batch_size")
AXES = (*ALLOCATION_AXES, "embedding_bytes")
_MODES = {"async": 0.0, "sync": 1.0}


def as_columns(table: Table, names: Sequence[str] = AXES) -> Columns:
    """The named columns as float arrays (n,); what is not known is NaN, and `sync` is 1 for sync and 0 for async.

    One allocation by itself, as a mapping of numbers, is one row.
    Raises InputError where a cell is no number, or the table is none.
    """
    whole = _whole(table)
    if _is_columnar(whole):
        size = _length(whole)
        return {name: _floats(name, whole[name]) if name in whole else np.full(size, np.nan) for name in names}
    rows = [_row(item) for item in whole]
    return {name: np.array([_number(name, row.get(name)) for row in rows], float) for name in names}


def _whole(table: Any) -> Any:
    """The table; of one row, in a list. Raises InputError where it is none."""
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
        raise InputError(f"The columns have {min(lengths)} to {max(lengths)} rows.", "Give as many in each.")
    return max(lengths, default=0)


def _floats(name: str, cells: Any) -> Column:
    if name == "sync":
        return np.array([_number(name, cell) for cell in cells], float)
    try:
        return cells.to_numpy(dtype=float, na_value=np.nan) if hasattr(cells, "to_numpy") else np.asarray(cells, float)
    except (TypeError, ValueError):
        raise InputError(f"The column {name} holds what is not a number.", "Correct it.") from None


def ended_well(table: Table) -> NDArray[np.bool_]:
    """Which rows (n,) have the status `ok`, or none."""
    whole = _whole(table)
    if _is_columnar(whole):
        statuses = list(whole["status"]) if "status" in whole else [None] * _length(whole)
    else:
        statuses = [_row(item).get("status") for item in whole]
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
        }
    return vars(item) if isinstance(item, Trial) else dict(item)


def _cores_of_one(allocation: Allocation, role: Role) -> float | None:
    replicas = allocation.replicas(role)
    return allocation.cores(role) / replicas if replicas else None


def _number(name: str, value: Any) -> float:
    if isinstance(value, str):
        if name == "sync" and value in _MODES:
            return _MODES[value]
        what = "sync or async" if name == "sync" else "a number"
        raise InputError(f"{name} is {value!r}, which is not {what}.", "Correct it.")
    if isinstance(value, Real | np.bool_):
        return float(value)
    if value is None or type(value).__name__ == "NAType" or value != value:  # what pandas calls missing has no truth
        return float("nan")
    raise InputError(f"{name} is {value!r}, which is not a number.", "Correct it.")


def known(column: Column, default: float) -> Column:
    """The column with `default` where nothing is known."""
    return np.where(np.isnan(column), default, column)
