"""Records as rows of data frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sizewright.spec.allocation import Allocation, Role

if TYPE_CHECKING:
    import pandas as pd


def frame(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] | None = None) -> pd.DataFrame:
    """Return a data frame of these rows; `columns` are there also where no row is."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=None if columns is None else list(columns))


def sizes(allocation: Allocation | None) -> dict[str, Any]:
    """Return the sizes of an allocation by the names of the trial table; of several groups, those of the first."""
    if allocation is None:
        return {}
    roles: tuple[tuple[str, Role], ...] = (("workers", "worker"), ("ps", "ps"))
    told: dict[str, Any] = {}
    for count, role in roles:
        groups = getattr(allocation, role)
        told[count] = allocation.replicas(role)
        told[f"{role}_cpu"] = groups[0].cpu if groups else None
        told[f"{role}_memory_bytes"] = groups[0].memory_bytes or None if groups else None
        if groups and groups[0].gpu:
            told[f"{role}_gpu"] = groups[0].gpu.count
    return told | {"batch_size": allocation.batch_size}
