"""Read users' tables as spreadsheets, databases and notebooks write them: CSV of any kind, JSON, Parquet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from json import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple

from sizewright.datasets.files import tables
from sizewright.datasets.files.bounded_parquet import read_parquet
from sizewright.errors import InputError, StoreError
from sizewright.formatting import format_count
from sizewright.spec._paths import absolute
from sizewright.spec._text_files import KeyTwiceError, read_json

_SEPARATORS = ",;\t| "
_TEXTS, _JSON, _PARQUET = (
    (".csv", ".tsv", ".txt", ".md", ".markdown"),
    (".json", ".jsonl", ".ndjson"),
    (".parquet", ".pq"),
)
_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""The characters at which `str.splitlines` begins a line."""
_HEAD = 1 << 16
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")


MAX_SIZES = {"rows": 200_000, "columns": 10_000, "cells": 5_000_000}
"""Limits for a table of users, each row of which becomes an object; tables of trials and runs are far smaller."""


class FileRow(NamedTuple):
    """One row, and its location in the file."""

    where: str
    cells: dict[str, Any]


class Table(NamedTuple):
    """The header and the rows below it."""

    names: tuple[str, ...]
    rows: list[FileRow]


def check_table_size(path: str | Path, **sizes: int) -> None:
    """Raise StoreError for more rows, columns or cells than a table may have."""
    for what, size in sizes.items():
        if size > MAX_SIZES[what]:
            raise StoreError(
                f"{path} has more than {MAX_SIZES[what]:,} {what}.",
                "Keep only the rows and columns that are needed, or split the table into several files.",
            )


def check_json_size(text: str, path: Path) -> None:
    """Raise StoreError for a JSON text of too many values, or of too many lines."""
    check_table_size(path, cells=max(sum(map(text.count, ",[{")), _count_line_breaks(text)))


def read_table(
    path: str | Path, is_known: Callable[[str], bool], is_number: Callable[[str], bool],
    check_names: Callable[[tuple[str, ...]], object] = lambda names: None,
) -> Table:  # fmt: skip
    """Read a table from a file named .csv, .tsv, .txt, .md, .json, .jsonl or .parquet.

    The content decides the format, not the name; text may be compressed (.gz). The separator of a text is the one that
    gives the most columns for which `is_known` is true. Decimal commas are read in columns of numbers where the
    separator is another character. `check_names` may refuse the names of the columns before the rows are read. Raises
    StoreError for a file that cannot be read, or that has too many rows or columns.
    """
    path = Path(absolute(path))
    suffix = suffix_of(path)
    try:
        tables.refuse_workbook(path, "table")
    except InputError as error:
        raise StoreError(error.message, error.remedy) from None
    if suffix not in (*_TEXTS, *_JSON, *_PARQUET) and (suffix or path.suffix.lower() not in _COMPRESSED):
        kinds = "neither .csv nor .parquet, .tsv, .json or .jsonl"
        raise StoreError(f"{path} is {kinds}.", "Save the table as CSV with a name that ends in .csv.")
    if path.is_file() and tables.first_bytes(path) == b"PAR1":
        return _read_parquet(path, check_names)
    text = read_text(path)
    if text.lstrip()[:1] in ("[", "{"):
        return _read_json(text, path, is_known, check_names)
    check_table_size(path, rows=_count_line_breaks(text) // 2)  # a line may end with two characters
    header = next(line for line in text.splitlines() if line.strip())
    if suffix in _JSON + _PARQUET and sum(map(is_known, _cells(header, _separator(header, is_known)))) < 2:
        kind = "JSON" if suffix in _JSON else "a Parquet file"
        raise StoreError(f"{path} is not {kind}, and not a table of text either.", "Write it again.")
    return _read_delimited(tables.unframed(text), path, is_known, is_number, check_names)


def suffix_of(path: Path) -> str:
    """Return the suffix of a file without compression, in lower case: `.csv` for `runs.CSV.gz`."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_text(path: Path) -> str:
    """Return the decompressed text of a file. Raises StoreError where it is missing, empty, or not text."""
    try:
        text = tables.read_text(path, "table")
    except InputError as error:
        raise StoreError(error.message, error.remedy) from None
    if not text.strip():
        raise StoreError(f"{path} is empty.", "Check that it was written to its end.")
    return text


def _count_line_breaks(text: str) -> int:
    return sum(map(text.count, _LINE_BREAKS))


def _read_delimited(
    text: str, path: Path, is_known: Callable[[str], bool], is_number: Callable[[str], bool],
    check_names: Callable[[tuple[str, ...]], object],
) -> Table:  # fmt: skip
    lines = text.splitlines(keepends=True)
    sep_line = re.fullmatch(r'"?sep=(.)"?\s*', lines[0]) if lines else None  # Excel's first line
    first = 1 if sep_line else 0
    while first < len(lines) and (not lines[first].strip() or _is_comment(lines, first, is_known)):
        first += 1
    header = lines[first].lstrip("# ") if first < len(lines) else ""
    separator = sep_line[1] if sep_line else _separator(header, is_known)
    cells = len(lines) + text.count(separator)
    check_table_size(path, rows=len(lines) - 1, columns=1 + header.count(separator), cells=cells)
    reader = csv.reader(
        io.StringIO(header + "".join(lines[first + 1 :]), newline=""), delimiter=separator, strict=True,
        skipinitialspace=True,
    )  # fmt: skip
    try:
        names = tuple(name.strip() for name in next(reader, []))
        while names and not names[-1]:
            names = names[:-1]  # a separator ends each line
        check_names(names)
        rows = _rows(reader, names, path, first, is_number)
    except csv.Error as error:
        raise StoreError(f"Cannot read {path}: {error}.", "Save it as CSV again and check its permissions.") from None
    return Table(names, _with_points(rows, [name for name in names if is_number(name)], separator, path))


def _is_comment(lines: Sequence[str], at: int, is_known: Callable[[str], bool]) -> bool:
    """Return whether the line is a comment rather than a header behind a `#`."""
    text = lines[at].lstrip()
    if not text.startswith("#"):
        return False
    names = text.lstrip("# ")
    return sum(map(is_known, _cells(names, _separator(names, is_known)))) < 2


def _separator(header: str, is_known: Callable[[str], bool]) -> str:
    def score(separator: str) -> tuple[int, int]:
        cells = _cells(header, separator)
        return sum(map(is_known, cells)), len(cells) if separator != " " else 0

    return max(_SEPARATORS, key=score)


def _cells(line: str, separator: str) -> list[str]:
    try:
        return [
            cell.strip() for cell in next(csv.reader([line[:_HEAD]], delimiter=separator, skipinitialspace=True), [])
        ]
    except csv.Error:
        return []


def _rows(
    reader: Any, names: tuple[str, ...], path: Path, above: int, is_number: Callable[[str], bool]
) -> list[FileRow]:
    comments = bool(names) and is_number(names[0])
    rows: list[FileRow] = []
    for cells in reader:
        if not any(cell.strip() for cell in cells) or (comments and cells[0].lstrip().startswith("#")):
            continue
        if tuple(cell.strip() for cell in cells[: len(names)]) == names:
            continue  # a repeated header in concatenated files
        while len(cells) > len(names) and not cells[-1].strip():
            cells = cells[:-1]
        where = f"row {len(rows) + 1} (line {reader.line_num + above})"
        if len(cells) != len(names):
            raise StoreError(
                f"{path}: {where} has {format_count(len(cells), 'cell')} for {format_count(len(names), 'column')}.",
                "Fix that row.",
            )
        rows.append(FileRow(where, dict(zip(names, cells, strict=True))))
    return rows


def _with_points(rows: list[FileRow], numbers: Sequence[str], separator: str, path: Path) -> list[FileRow]:
    """Return the rows with decimal points. Raises StoreError where a number is ambiguous."""
    try:
        read = tables.number_reader((str(row.cells[name]) for row in rows for name in numbers), separator)
    except ValueError as error:
        raise StoreError(f"{path}: {error}.", tables.NO_SEPARATORS) from None
    if read is None:
        return rows
    return [FileRow(row.where, row.cells | {name: read(str(row.cells[name])) for name in numbers}) for row in rows]


def _read_json(
    text: str, path: Path, is_known: Callable[[str], bool], check_names: Callable[[tuple[str, ...]], object]
) -> Table:
    remedy = "Write a list of records, or one per line."
    check_json_size(text, path)
    try:
        records = tables.json_records(text, read_json, is_known)
    except KeyTwiceError as error:
        raise StoreError(f"{path}: {error}.", "Keep one of them.") from None
    except JSONDecodeError as error:
        raise StoreError(f"{path} is not JSON: {error}.", remedy) from None
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read: {error}.", remedy) from None
    names = tuple(dict.fromkeys(name for each in records for name in each))
    check_table_size(path, rows=len(records), columns=len(names))
    check_names(names)
    return Table(names, [FileRow(f"row {number}", each) for number, each in enumerate(records, 1)])


_MAX_BYTES = 256 << 20
"""Limit for a Parquet file of users before its rows become objects."""


def _read_parquet(path: Path, check_names: Callable[[tuple[str, ...]], object]) -> Table:
    import pyarrow as pa

    try:
        table = read_parquet(path, _MAX_BYTES)
        # pandas writes its row labels as a column; they are not data.
        names = [name for name in table.column_names if not name.startswith("__index_level_")]
        check_table_size(path, rows=table.num_rows, columns=len(names), cells=table.num_rows * len(names))
        if duplicates := [name for name in names if names.count(name) > 1]:
            raise StoreError(f"{path} has more than one column {duplicates[0]!r}.", "Keep one of each.")
        check_names(tuple(names))
        rows = _in_microseconds(table.select(names)).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise StoreError(f"{path} is not a Parquet file that can be read: {reason}.", "Write it again.") from None
    return Table(tuple(names), [FileRow(f"row {number}", cells) for number, cells in enumerate(rows, 1)])


def _in_microseconds(table: Any) -> Any:
    """Convert the nanoseconds that pandas may write, which Python's datetime cannot hold."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp("us", tz=field.type.tz)) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields), safe=False)
