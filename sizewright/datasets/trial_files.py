"""Trials in files, CSV or Parquet: how users bring measurements of their own and take ours away."""

from __future__ import annotations

import csv
import difflib
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from sizewright.datasets._columns import COLUMNS, with_utc
from sizewright.datasets.trials import Trial
from sizewright.datasets.whole_files import whole_file
from sizewright.errors import StoreError
from sizewright.spec._paths import absolute

NEEDED = ("workers", "ps", "throughput")
_SHOWN_FAULTS = 4
_HOW = f"Give the columns {', '.join(NEEDED)} and any others of the trial table."
_KNOWN = f"Rename or drop what is not one of: {', '.join(COLUMNS)}."


class _Row(NamedTuple):
    where: str
    cells: dict[str, Any]


def export_trials(trials: Iterable[Trial], path: str | Path) -> None:
    """Write trials to a `.csv` or `.parquet` file, one row each, times in UTC.

    Raises StoreError when the suffix is another or the file cannot be written.
    """
    path = Path(absolute(path))
    write = _by_suffix(path, csv=_write_csv, parquet=_write_parquet)
    try:
        with whole_file(path) as file:
            write([with_utc(trial).model_dump() for trial in trials], file)
    except (OSError, OverflowError, ValueError) as error:
        raise StoreError(f"Cannot write the trials to {path}: {error}.", "Check the path and its rights.") from None


def import_trials(path: str | Path, *, other_columns: bool = False) -> list[Trial]:
    """Read trials from a `.csv` or `.parquet` file. Empty cells are absent; a time without a zone is UTC.

    Columns that are not the trial table's are passed over with `other_columns`, else they are a fault; and a trial
    without throughput or status failed. Rows count from 1 below the header.
    Raises StoreError with the first few faults, each with row and column.
    """
    path = Path(absolute(path))
    read = _by_suffix(path, csv=_read_csv, parquet=_read_parquet)
    if not path.is_file():
        found = "It is a folder" if path.is_dir() else "No trial file"
        raise StoreError(f"{found} at {path}.", "Give a .csv or .parquet file of trials.")
    trials, faults = _validated(read(path, other_columns), lenient=other_columns)
    if faults:
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise StoreError(f"{path}: {'; '.join(faults[:_SHOWN_FAULTS])}{more}.", "Correct these cells.")
    if not trials:
        raise StoreError(f"{path} holds no trials.", _HOW)
    return trials


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


def _read_csv(path: Path, other_columns: bool) -> Iterator[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from _csv_rows(csv.reader(file, strict=True), path, other_columns)
    except UnicodeDecodeError:
        raise StoreError(f"{path} is not text in UTF-8.", "Save it as CSV in UTF-8.") from None
    except (OSError, csv.Error) as error:
        raise StoreError(f"Cannot read {path}: {error}.", "Save it as CSV again and check its rights.") from None


def _csv_rows(lines: Any, path: Path, other_columns: bool) -> Iterator[_Row]:
    filled = (cells for cells in lines if cells)
    header = [name.strip() for name in next(filled, [])]
    _check_columns(header, path, other_columns)
    for number, cells in enumerate(filled, start=1):
        where = f"row {number} (line {lines.line_num})"
        if len(cells) != len(header):
            raise StoreError(f"{path}: {where} has {len(cells)} cells for {len(header)} columns.", "Mend that row.")
        yield _Row(where, dict(zip(header, cells, strict=True)))


def _write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {int: pa.int64(), float: pa.float64(), str: pa.string(), datetime: pa.timestamp("us", tz="UTC")}
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def _read_parquet(path: Path, other_columns: bool) -> Iterator[_Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
            # pandas writes its row labels as a column; they are no measurement.
            names = [name for name in table.column_names if not name.startswith("__index_level_")]
            _check_columns(names, path, other_columns)
            rows = _in_microseconds(table.select(names)).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise StoreError(f"{path} is not a Parquet file that can be read: {reason}.", "Write it again.") from None
    for number, cells in enumerate(rows, start=1):
        yield _Row(f"row {number}", cells)


def _in_microseconds(table: Any) -> Any:
    """Python's datetime holds no nanoseconds, in which pandas may write."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp("us", tz=field.type.tz)) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields), safe=False)


def _check_columns(names: Sequence[str], path: Path, other_columns: bool) -> None:
    if not any(names):
        raise StoreError(f"{path} is empty.", _HOW)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise StoreError(f"{path} has more than one column {', '.join(map(repr, twice))}.", "Keep one of each.")
    unknown = [name for name in names if name not in COLUMNS and not other_columns]
    if unknown:
        raise StoreError(f"{path}: {'; '.join(map(_unknown, unknown[:_SHOWN_FAULTS]))}.", _KNOWN)
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise StoreError(f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}.", _HOW)


def _unknown(name: str) -> str:
    if not name:
        return "a column has no name (pandas writes its row labels so, unless told index=False)"
    close = difflib.get_close_matches(name.lower(), COLUMNS, n=1, cutoff=0.5)
    return f"unknown column {name!r}" + (f" (did you mean '{close[0]}'?)" if close else "")


def _validated(rows: Iterable[_Row], *, lenient: bool) -> tuple[list[Trial], list[str]]:
    """Trials and faults; with `lenient` a trial that tells neither throughput nor status failed."""
    trials, faults = [], []
    for row in rows:
        told = {name: raw for name, raw in row.cells.items() if name in COLUMNS}
        cells = {name: value for name, raw in told.items() if (value := _cell(name, raw)) is not None}
        if lenient and "throughput" not in cells:
            cells = {"status": "failed"} | cells
        try:
            trial = with_utc(Trial.model_validate(cells))
        except ValidationError as error:
            faults += [f"{row.where}, {_reason(fault)}" for fault in error.errors()]
        except OverflowError:
            faults.append(f"{row.where}, started_at: this time is out of range")
        else:
            trials.append(trial)
            if trial.status == "ok" and trial.throughput is None:
                faults.append(f"{row.where}, throughput: is empty, which only a trial that is not ok may be")
    return trials, faults


def _reason(fault: Any) -> str:
    column = fault["loc"][0] if fault["loc"] else "cells"
    if fault["type"] == "missing":
        return f"{column}: is empty"
    message = fault["msg"].removeprefix("Value error, ")
    return f"{column}: {message[:1].lower()}{message[1:]} (found {reprlib.repr(fault['input'])})"


def _cell(name: str, raw: Any) -> Any:
    """The value of a cell; None where it is empty or not a number, which is how tables write "unknown"."""
    if raw is None or raw == "" or raw != raw:
        return None
    if COLUMNS[name] is str or not isinstance(raw, str):
        return raw
    text = raw.strip()
    if text.lower() in ("", "nan"):
        return None
    return _whole(text) if COLUMNS[name] is int else text


def _whole(text: str) -> Any:
    """`4.0` and `1e6` are whole numbers too; spreadsheets and pandas write them so."""
    if text.lstrip("+-").isdecimal():
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else text
