"""Convert records to data frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sizewright.spec.allocation import Allocation, Role

if TYPE_CHECKING:
    import pandas as pd


def frame(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] | None = None) -> pd.DataFrame:
    """Return a data frame of the rows; `columns` are present even without rows."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=None if columns is None else list(columns))


def sizes(allocation: Allocation | None) -> dict[str, Any]:
    """Return the sizes of an allocation by column of the trial table; of several groups the first counts."""
    if allocation is None:
        return {}
    roles: tuple[tuple[str, Role], ...] = (("workers", "worker"), ("ps", "ps"))
    columns: dict[str, Any] = {}
    for count, role in roles:
        groups = getattr(allocation, role)
        columns[count] = allocation.replicas(role)
        columns[f"{role}_cpu"] = groups[0].cpu if groups else None
        columns[f"{role}_memory_bytes"] = groups[0].memory_bytes or None if groups else None
        if groups and groups[0].gpu:
            columns[f"{role}_gpu"] = groups[0].gpu.count
    return columns | {"batch_size": allocation.batch_size}
