"""Place the embedding tables of a job on servers or ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sizewright.api.inputs import counted_job, load_job
from sizewright.errors import InputError
from sizewright.recommender.table_placement.place import place_tables as place
from sizewright.spec import Job, TablePlacement
from sizewright.spec.units import QuantityError, parse_bytes, parse_count, parse_number

if TYPE_CHECKING:
    from sizewright.api._records import JobLike

_COLUMNS = {"table", "load"}


def place_tables(
    job: JobLike,
    *,
    servers: int,
    memory: float | str | None = None,
    loads: Mapping[int, float] | str | Path | None = None,
    whole: bool = False,
    data: str | Path | None = None,
) -> TablePlacement:
    """Return which server holds which rows of which table, so that the largest load is as small as possible.

    Tables stay whole where that balances the `servers`, and are split by rows otherwise; with `whole` none is split.
    `memory` is that of each server for weights and optimizer state, such as `16Gi`. `loads` are measured loads by the
    number of the table, or a file with the columns `table` and `load`, in any unit; without them the load of a table
    is the floats that a sample reads of it, or the bytes where tables have data types of their own.

    Raises JobError for the job file, ClickLogError for a log whose ids have to be counted, InputError for a job that
    runs a command without describing its tables, for tables that do not fit, and for loads that are not one number
    above 0 for each table.
    """
    described = load_job(job, data)
    if not described.describes_tables:
        raise InputError(
            "The embedding tables of a command are unknown, so they cannot be placed.",
            "Describe them beside the command: model.tables with count, rows, dim and pooling.",
        )
    if servers < 1:
        raise InputError(f"servers must be at least 1, got {servers}.", "Pass the number of servers or ranks.")
    described = counted_job(described)
    measured = None if loads is None else _loads(loads, described)
    return place(described, servers, memory_bytes=_bytes(memory), loads=measured, whole=whole)


def _bytes(memory: float | str | None) -> int:
    try:
        return 0 if memory is None else parse_bytes(memory)
    except ValueError as error:
        raise InputError(f"memory: {error}.", "Pass bytes, or a text such as 16Gi.") from None


def _loads(loads: Mapping[int, float] | str | Path, job: Job) -> Sequence[float]:
    """Return the load of each table. Raises InputError if one is missing, superfluous or not above 0."""
    where = "loads" if isinstance(loads, Mapping) else str(loads)
    by_table = loads if isinstance(loads, Mapping) else _read_loads(loads)
    tables = range(job.model.tables.count)
    if by_table.keys() != set(tables):
        wrong = min(by_table.keys() ^ set(tables))
        problem = f"has no load of table {wrong}" if wrong in tables else f"has a table {wrong}"
        raise InputError(
            f"{where} {problem}, but the job has the tables 0 to {len(tables) - 1}.", "Give each table one load."
        )
    if bad := [table for table in tables if not 0 < by_table[table] < float("inf")]:
        raise InputError(f"{where}: the load of table {bad[0]} is {by_table[bad[0]]}.", "Give a number above 0.")
    return [float(by_table[table]) for table in tables]


def _read_loads(path: str | Path) -> dict[int, float]:
    from sizewright.datasets.files.tables import read_table

    frame = read_table(path, "table of loads")
    if missing := _COLUMNS - set(frame.columns):
        raise InputError(f"{path} has no column {min(missing)}.", "Write the columns table and load.")
    found: dict[int, float] = {}
    for table, load in zip(frame["table"], frame["load"], strict=True):
        try:
            number, value = parse_count(str(table)), parse_number(str(load))
        except QuantityError as error:
            raise InputError(f"{path}: {error}.", "Write the number of a table, from 0, and its load.") from None
        if number in found:
            raise InputError(f"{path} has table {number} twice.", "Give each table one load.")
        found[number] = value
    return found
