"""Import and export trials as CSV, JSON or Parquet files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sizewright.datasets._columns import COLUMNS, with_utc
from sizewright.datasets.files.atomic_write import atomic_file
from sizewright.datasets.files.table_files import FileRow, Table, read_table
from sizewright.datasets.trials.column_names import Columns, match_columns, meaning
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import StoreError
from sizewright.formatting import format_count
from sizewright.spec._base import validate
from sizewright.spec._faults import explain
from sizewright.spec._paths import absolute

REQUIRED = ("workers", "ps", "throughput")
_SHOWN_FAULTS = 4
_HOW = f"Add rows with {', '.join(REQUIRED)} and any other columns of the trial table."
_MIN_DIGITS_OF_COPY = 5
_ROW_LABEL = re.compile(r"Unnamed: \d+|index|level_\d+|row|#", re.IGNORECASE)
_MISSING_MARKS = ("", "nan", "na", "n/a", "null", "none", "-")


def export_trials(trials: Iterable[Trial], path: str | Path) -> None:
    """Write trials to a `.csv` or `.parquet` file, one row each, times in UTC.

    Raises StoreError for another suffix, and when the file cannot be written.
    """
    path = Path(absolute(path))
    write = _by_suffix(path, csv=_write_csv, parquet=_write_parquet)
    try:
        with atomic_file(path) as file:
            write([with_utc(trial).model_dump() for trial in trials], file)
    except (OSError, OverflowError, ValueError) as error:
        raise StoreError(f"Cannot write the trials to {path}: {error}.", "Check the path and permissions.") from None


class TrialTable(NamedTuple):
    """The trials of a file, the mapping of its columns, and notes on its rows."""

    trials: list[Trial]
    columns: Columns
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        """Describe how the file was read in a few sentences; empty where there is nothing to note."""
        return " ".join(filter(None, (self.columns.describe(), *self.notes)))


def import_trials(
    path: str | Path, *, other_columns: bool = False, columns: Mapping[str, str] | None = None
) -> list[Trial]:
    """Read the trials of a file, as `read_trials` does."""
    return read_trials(path, other_columns=other_columns, columns=columns).trials


def read_trials(
    path: str | Path,
    *,
    other_columns: bool = False,
    columns: Mapping[str, str] | None = None,
    has_ps: bool = True,
) -> TrialTable:
    """Read trials from a CSV, JSON or Parquet file, as `trials_of` does from a table."""
    path, mapping = Path(absolute(path)), dict(columns or {})
    table = read_table(
        path,
        is_known=lambda name: name in mapping or meaning(name) is not None,
        is_number=lambda name: COLUMNS.get(mapping.get(name) or meaning(name) or "") in (int, float),
        check_names=lambda names: _matched(names, mapping, str(path), has_ps and not other_columns),
    )
    return trials_of(table, str(path), other_columns=other_columns, columns=mapping, has_ps=has_ps)


def trials_of(
    table: Table, name: str, *, other_columns: bool = False, columns: Mapping[str, str] | None = None,
    has_ps: bool = True,
) -> TrialTable:  # fmt: skip
    """Validate the trials of a table, which errors call `name`. Empty cells are absent; a time without a zone is UTC.

    Columns are matched by their name, by a synonym (`samples_per_sec`), or by `columns`, which maps a name of the table
    to one of the trial table, or to "" to leave it out. Other columns are left out. A row that is a copy of another
    counts once (`count_once`). Without `has_ps`, `ps` is 0 where the table has no such column. With `other_columns` a
    trial without throughput and status counts as failed, and `ps` is optional, too. Rows count from 1 below the header.
    Raises StoreError with the first few faults, each with row and column.
    """
    needs_ps = has_ps and not other_columns
    matched = _matched(table.names, dict(columns or {}), name, needs_ps)
    rows = [
        FileRow(row.where, {column: row.cells.get(name) for name, column in matched.read_as.items()})
        for row in table.rows
    ]
    trials, faults = _validated(rows, lenient=other_columns, defaults={} if needs_ps else {"ps": 0})
    if faults:
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise StoreError(f"{name}: {'; '.join(faults[:_SHOWN_FAULTS])}{more}.", "Correct these cells.")
    if not trials:
        raise StoreError(f"{name} holds no trials.", _HOW)
    others = [column for column in matched.left_out if not _ROW_LABEL.fullmatch(column)]
    counted, notes = count_once(
        trials, [row.where for row in rows], [tuple(str(row.cells.get(each)) for each in others) for row in table.rows]
    )
    return TrialTable(counted, matched, notes)


def count_once(
    trials: Sequence[Trial], where: Sequence[str] = (), others: Sequence[object] = ()
) -> tuple[list[Trial], tuple[str, ...]]:
    """Return the trials without copies of others, and notes on the copies and on trials with throughput 0.

    A copy is equal in every column. With a time of day, or a throughput of at least five digits, equal rows are copies;
    without either, they are repeated measurements. `others` are further cells of each row that are not in a trial.
    """
    where = where or [f"row {number}" for number in range(1, len(trials) + 1)]
    seen_keys, unique_trials, copies = set[object](), list[Trial](), list[str]()
    for number, trial in enumerate(trials):
        key = (trial, others[number] if others else None)
        if key in seen_keys and _is_unmistakable(trial):
            copies.append(where[number])
        else:
            seen_keys.add(key)
            unique_trials.append(trial)
    idle = [at for trial, at in zip(trials, where, strict=True) if trial.status == "ok" and trial.throughput == 0]
    notes = []
    if copies:
        verbs = ("is a copy of another row and counts", "are copies of others and count")
        notes.append(f"{_count_of_rows(copies, len(trials), verbs)} once ({_shortened(copies)}).")
    if idle:
        verbs = ("has throughput 0, so no model learns from it", "have throughput 0, so no model learns from them")
        notes.append(f"{_count_of_rows(idle, len(trials), verbs)} ({_shortened(idle)}).")
    return unique_trials, tuple(notes)


def _is_unmistakable(trial: Trial) -> bool:
    """Return whether an equal row must be a copy, since two measurements would hardly be equal."""
    if trial.started_at and trial.started_at.time() != time(0):
        return True
    digits = Decimal(repr(trial.throughput or 0.0)).normalize().as_tuple().digits
    return len(digits) >= _MIN_DIGITS_OF_COPY


def _count_of_rows(some: Sequence[str], count: int, verbs: tuple[str, str]) -> str:
    return f"{len(some):,} of {format_count(count, 'row')} {verbs[len(some) > 1]}"


def _shortened(where: Sequence[str]) -> str:
    more = f" and {len(where) - _SHOWN_FAULTS:,} more" if len(where) > _SHOWN_FAULTS else ""
    return f"{', '.join(where[:_SHOWN_FAULTS])}{more}"


def _by_suffix(path: Path, **choices: Any) -> Any:
    choice = choices.get(path.suffix.lower().removeprefix("."))
    if choice is None:
        raise StoreError(f"{path} is neither .csv nor .parquet.", "Name the file .csv or .parquet.")
    return choice


def _write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)


def _csv_cell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {int: pa.int64(), float: pa.float64(), str: pa.string(), datetime: pa.timestamp("us", tz="UTC")}
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def _matched(names: Sequence[str], mapping: Mapping[str, str], table: str, needs_ps: bool) -> Columns:
    """Match the columns of a table. Raises StoreError where names are missing or repeated."""
    _check_names(names, table)
    matched = match_columns(names, mapping, table)
    _check_needed(matched, names, table, needs_ps)
    return matched


def _check_names(names: Sequence[str], table: str) -> None:
    if not any(names):
        raise StoreError(f"{table} is empty.", _HOW)
    duplicates = sorted({name for name in names if name and names.count(name) > 1})
    if duplicates:
        raise StoreError(f"{table} has more than one column {', '.join(map(repr, duplicates))}.", "Keep one of each.")


def _check_needed(matched: Columns, names: Sequence[str], table: str, needs_ps: bool) -> None:
    needed = [name for name in REQUIRED if name != "ps" or needs_ps]
    missing = [name for name in needed if name not in matched.read_as.values()]
    if not missing:
        return
    remedy = f"Rename your column, or map it: --map YOUR_COLUMN={missing[0]}."
    if missing == ["ps"]:
        remedy = "Add it, map yours (--map YOUR_COLUMN=ps), or pass --job FILE of a job without PS."
    raise StoreError(
        f"{table} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
        f"it has {', '.join(filter(None, names))}.",
        remedy,
    )


def _validated(rows: Iterable[FileRow], *, lenient: bool, defaults: dict[str, Any]) -> tuple[list[Trial], list[str]]:
    """Return trials and faults; with `lenient` a trial without throughput and status counts as failed."""
    trials, faults = [], []
    for row in rows:
        known_cells = {name: value for name, raw in row.cells.items() if (value := _cell(name, raw)) is not None}
        cells = defaults | known_cells
        if lenient and "throughput" not in cells:
            cells = {"status": "failed"} | cells
        try:
            trial = with_utc(validate(Trial, cells))
        except ValidationError as error:
            faults += [f"{row.where}, {_reason(fault)}" for fault in error.errors()]
        except OverflowError:
            faults.append(f"{row.where}, started_at: this time is out of range")
        else:
            trials.append(trial)
            if trial.status == "ok" and trial.throughput is None:
                faults.append(f"{row.where}, throughput: is empty, but a trial with status ok needs it")
    return trials, faults


def _reason(fault: ErrorDetails) -> str:
    column = fault["loc"][0] if fault["loc"] else "cells"
    return f"{column}: {'is empty' if fault['type'] == 'missing' else explain(fault)}"


def _cell(name: str, raw: Any) -> Any:
    """Return the value of a cell; None where it is empty or NaN, which is how tables write "unknown"."""
    if raw is None or raw == "" or raw != raw:
        return None
    if isinstance(raw, timedelta):
        return raw.total_seconds()
    if name in ("status", "sync") and isinstance(raw, str):
        return raw.strip().lower()
    if COLUMNS[name] is str or not isinstance(raw, str):
        return raw
    text = raw.strip()
    return None if text.lower() in _MISSING_MARKS else text
