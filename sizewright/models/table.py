"""The trial table as plain columns, so that fitting and predicting need no data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.errors import InputError
from sizewright.spec import Allocation, Role

Column = NDArray[np.float64]
Columns = dict[str, Column]
Table = Any  # a pandas DataFrame, a mapping of columns, or a sequence of Trial or Allocation

ALLOCATION_AXES = ("workers", "ps", "worker_cpu", "ps_cpu", "batch_size")
AXES = (*ALLOCATION_AXES, "embedding_bytes")
_MODES = {"async": 0.0, "sync": 1.0}


def as_columns(table: Table, names: Sequence[str] = AXES) -> Columns:
    """The named columns as float arrays (n,); what is not known is NaN, and `sync` is 1 for sync and 0 for async.

    Raises InputError where a cell is no number, or the table is none.
    """
    if isinstance(table, np.ndarray):
        raise InputError("Trials and allocations need named columns.", "Give a data frame, or a mapping of columns.")
    if _is_columnar(table):
        size = len(next(iter(table.values()))) if isinstance(table, Mapping) else len(table)
        return {name: _floats(name, table[name]) if name in table else np.full(size, np.nan) for name in names}
    rows = [_row(item) for item in table]
    return {name: np.array([_number(name, row.get(name)) for row in rows], float) for name in names}


def _floats(name: str, cells: Any) -> Column:
    if name == "sync":
        return np.array([_number(name, cell) for cell in cells], float)
    try:
        return cells.to_numpy(dtype=float, na_value=np.nan) if hasattr(cells, "to_numpy") else np.asarray(cells, float)
    except (TypeError, ValueError):
        raise InputError(f"The column {name} holds what is not a number.", "Correct it.") from None


def ended_well(table: Table) -> NDArray[np.bool_]:
    """Which rows (n,) have the status `ok`, or none."""
    if _is_columnar(table):
        first = next(iter(table.values())) if isinstance(table, Mapping) else table
        statuses = list(table["status"]) if "status" in table else [None] * len(first)
    else:
        statuses = [_row(item).get("status") for item in table]
    return np.array([status == "ok" or not isinstance(status, str) for status in statuses], bool)


def _is_columnar(table: Table) -> bool:
    return isinstance(table, Mapping) or hasattr(table, "columns")


def _row(item: Any) -> dict[str, Any]:
    if isinstance(item, Allocation):
        return {
            "workers": item.replicas("worker"),
            "ps": item.replicas("ps"),
            "worker_cpu": _cores_of_one(item, "worker"),
            "ps_cpu": _cores_of_one(item, "ps"),
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
