"""Read tables of other systems as data frames: CSV with any separator, JSON, JSON lines or Parquet, also compressed."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from sizewright.datasets.files.bounded_parquet import MAX_BYTES, read_parquet
from sizewright.datasets.files.wrappings import (
    READ_ERRORS,
    ReaderOptions,
    Text,
    check_command,
    check_size,
    find_texts,
    open_text,
)
from sizewright.errors import InputError
from sizewright.spec._json import loads

_SEPARATORS = ",;\t|"
_HEAD = 1 << 16
_MAX_TEXT_BYTES = 256 << 20
"""Limit for a table that is read as text, to report the locations of its rows."""
_MAX_COLUMNS = 10_000
_MAX_OBJECTS = 20_000_000
"""Limit for a table that is read as objects of Python: the values of JSON, or the lines of a framed table."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")
_OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"
_IN_WORKBOOKS = re.compile(r"xl/workbook\.|content\.xml$|Index/Document\.iwa$")
_WITH_COMMAS = re.compile(r"[+-]?\d{1,3}([. '\u00a0\u202f]\d{3})+(,\d+)?|[+-]?\d*,\d+|[+-]?\d+")
_AMOUNT = re.compile(r"\s*([+-]?[\d.,][\d.,'\u00a0\u202f ]*(?<=[\d.,])|\d)(\s*[A-Za-z].*|)\s*")
"""A number, and its unit or exponent."""
_GROUPED_BY = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+") for mark in ",."}


def read_table(
    path: str | Path, what: str, *, headerless: Callable[[list[str]], bool] = lambda _: False,
    records: Callable[[list[Any]], pd.DataFrame] | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Read a table; its column names are stripped and in lower case. Messages call it `what`.

    Where `headerless` is true of the first row, that row is data, and columns are numbered. `records` makes a table of
    a list in JSON. Raises InputError with one sentence for a file that cannot be read.
    """
    path = Path(path)
    with _explained(path, what):
        text = _only_text(path, what, utf_16=True)
        if text.layers and text.layers[-1].kind == "parquet":
            frame: pd.DataFrame = read_parquet(path).to_pandas()
        else:
            check_size(str(path), text.layers, what, MAX_BYTES)
            with open_text(str(path), text.layers) as stream:
                if text.line[:2] in _UTF_16:
                    data = stream.read().decode("utf-16").encode()
                    stream, text = io.BytesIO(data), text._replace(line=data.partition(b"\n")[0])
                frame = _read(stream, text, f"The {what} {path}", headerless, records)
    if not len(frame.columns):
        raise InputError(f"Cannot read the {what} {path}: it is empty.", "Check that it was written to its end.")
    return frame.rename(columns=lambda name: str(name).strip().lower())


def read_text(path: str | Path, what: str) -> str:
    """Return the decompressed text of a file. Raises InputError with one sentence where it cannot be read."""
    path = Path(path)
    with _explained(path, what):
        text = _only_text(path, what, utf_16=True)
        if text.layers and text.layers[-1].kind == "parquet":
            raise InputError(f"{path} is a Parquet file, but the {what} must be text.", "Write it as CSV or JSON.")
        check_size(str(path), text.layers, what, _MAX_TEXT_BYTES)
        with open_text(str(path), text.layers) as stream:
            data = stream.read()
        return data.decode("utf-16" if data[:2] in _UTF_16 else "utf-8-sig")


def separator_of(line: str) -> str:
    """Return the separator of the columns of a first line."""
    return max(_SEPARATORS, key=line.count) if line else ","


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Raise an InputError that explains in one sentence why a file cannot be read."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a {what}.", "Name a file in it.")
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"No {what} at {path}.", "Check the path.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"Cannot read the {what} {path}: {error}.", "Save it as text in UTF-8.") from None
    except (*READ_ERRORS, ValueError, csv.Error) as error:  # pandas' and pyarrow's are ValueErrors
        if isinstance(error, ValueError) or getattr(error, "errno", None) is not None:
            reason = " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
            message, remedy = f"Cannot read the {what} {path}: {reason}.", "Save it as CSV, JSON or Parquet."
        else:
            message, remedy = f"The {what} {path} is damaged or cut short.", check_command(str(path))
        raise InputError(message, remedy) from None


def refuse_workbook(path: Path, what: str) -> None:
    """Raise InputError for a workbook of a spreadsheet program, also under another name."""
    if path.suffix.lower() in _WORKBOOKS or _is_workbook(path):
        raise InputError(
            f"{path} is a spreadsheet workbook, but the {what} must be text or Parquet.",
            "Save the sheet as CSV, or in Python: pandas.read_excel(FILE).to_csv('table.csv', index=False).",
        )


def _is_workbook(path: Path) -> bool:
    if not path.is_file():
        return False
    if first_bytes(path) == _OLD_WORKBOOK:
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return any(_IN_WORKBOOKS.match(name) for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def first_bytes(path: Path) -> bytes:
    """Return the first four bytes of a file, which identify most formats."""
    with path.open("rb") as file:
        return file.read(4)


def check_unique_columns(names: Sequence[str], table: str) -> None:
    """Raise InputError where several columns have the same name."""
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{table} has more than one column {duplicates[0]!r}.", "Keep one of each.")


def number_reader(texts: Iterable[str], separator: str) -> Callable[[str], str] | None:
    """Return a function that rewrites the numbers of a table with decimal points; None where they have them already.

    `texts` are all numbers of the table; units may follow a number. Raises ValueError, with the text, where a mark
    could be either a decimal or a thousands separator: all commas stand before three digits, or all points do in a
    table with a separator that spreadsheets use where decimals have a comma.
    """
    if separator == ",":
        return None
    numbers = [match[1] for text in texts if (match := _AMOUNT.fullmatch(text))]
    commas, points = ([number for number in numbers if mark in number] for mark in ",.")
    if commas:
        if any(_WITH_COMMAS.fullmatch(number) and not _GROUPED_BY[","].fullmatch(number) for number in commas):
            return _with_point
        ambiguous = not points and all(number.count(",") == 1 for number in commas)
    else:
        grouped = bool(points) and separator in ";\t" and all(map(_GROUPED_BY["."].fullmatch, points))
        if grouped and any(number.count(".") > 1 for number in points):
            return _with_point
        ambiguous = grouped
    if ambiguous:
        number = (commas or points)[0]
        plain = re.sub("[,.]", "", number)
        raise ValueError(f"{number!r} could be {plain} or {number.replace(',', '.')}")
    return None


def _with_point(text: str) -> str:
    """Rewrite `1.234,5 GiB` as `1234.5 GiB`; other text stays unchanged."""
    match = _AMOUNT.fullmatch(text)
    if not match or not (_WITH_COMMAS.fullmatch(match[1]) or _GROUPED_BY["."].fullmatch(match[1])):
        return text.strip()
    return re.sub(r"[. '\u00a0\u202f]", "", match[1]).replace(",", ".") + match[2]


def _only_text(path: Path, what: str, *, utf_16: bool = False) -> Text:
    refuse_workbook(path, what)
    texts = list(find_texts(str(path), ReaderOptions(what, InputError, json=True, utf_16=utf_16)))
    names = [text.member for text in texts]
    if len(texts) > 1:
        raise InputError(f"{path} holds {len(texts)} files: {', '.join(names[:5])}.", "Unpack it and name one of them.")
    if not texts:
        raise InputError(f"The {what} {path} holds no file.", "Check that it was written to its end.")
    if texts[0].fault:
        raise texts[0].fault
    return texts[0]


def _read(
    stream: BinaryIO, text: Text, name: str, headerless: Callable[[list[str]], bool],
    records: Callable[[list[Any]], pd.DataFrame] | None,
) -> pd.DataFrame:  # fmt: skip
    line = text.line.decode("utf-8-sig").strip()
    if line[:1] in ("[", "{"):
        document = stream.read().decode("utf-8-sig")
        _check_objects(sum(map(document.count, ",[{\n")), name)
        return (records or pd.DataFrame)(json_records(document))
    if line[:1] in ("|", "+") or _RULE.fullmatch(_second(stream).strip()):
        framed = stream.read()
        _check_objects(framed.count(b"\n"), name)
        stream = io.BytesIO(unframed(framed.decode("utf-8-sig")).encode())
        line = stream.readline().decode().strip()
        stream.seek(0)
    if match := re.fullmatch(r'"?sep=(.)"?', line):  # as Excel writes it
        stream.readline()
        separator, line = match[1], stream.readline().decode().strip()
        data = io.BytesIO(line.encode() + b"\n" + stream.read())
    else:
        separator = separator_of(line)
        data = stream  # type: ignore[assignment]
    if not line and not text.more:
        return pd.DataFrame()
    first = [field.strip() for field in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]
    if len(first) > _MAX_COLUMNS:
        raise InputError(f"{name} has more than {_MAX_COLUMNS:,} columns.", "Keep only the columns that are needed.")
    if not headerless(first):
        check_unique_columns([column.lower() for column in first if column], name)
    frame = pd.read_csv(
        data, sep=separator, header=None if headerless(first) else "infer", skipinitialspace=True, encoding="utf-8-sig",
        low_memory=False, index_col=False, dtype=None if separator == "," else str,
    )  # fmt: skip
    return frame if separator == "," else _with_points(frame, separator, name)


def _check_objects(count: int, name: str) -> None:
    if count > _MAX_OBJECTS:
        raise InputError(
            f"{name} has more than {_MAX_OBJECTS:,} values.", "Save it as CSV or Parquet, which take less memory."
        )


def _with_points(frame: pd.DataFrame, separator: str, name: str) -> pd.DataFrame:
    """Convert the columns of numbers of a table of texts. Raises InputError where a number is ambiguous."""
    numbers = [column for column in frame if frame[column].dropna().str.fullmatch(_AMOUNT.pattern).all()]
    try:
        read = number_reader((text for column in numbers for text in frame[column].dropna()), separator)
    except ValueError as error:
        raise InputError(f"{name}: {error}.", NO_SEPARATORS) from None
    texts = {str(each): frame[each].map(read, na_action="ignore") if read else frame[each] for each in numbers}
    return frame.assign(**{column: _as_numbers(values) for column, values in texts.items()})


def _as_numbers(column: pd.Series) -> pd.Series:
    try:
        return pd.to_numeric(column)
    except ValueError:  # with thousands separators or units, which later readers parse
        return column


NO_SEPARATORS = "Write decimal points and no thousands separators, and separate the cells by commas."


def _second(stream: Any) -> str:
    """Return the second line of a stream, without moving it; empty where there is none."""
    if hasattr(stream, "peek"):
        head = stream.peek(_HEAD)
    else:
        head = stream.getvalue()[:_HEAD] if hasattr(stream, "getvalue") else b""
    lines = head.decode(errors="replace").splitlines()
    return lines[1] if len(lines) > 1 else ""


def json_records(
    text: str, read: Callable[[str], Any] = loads, is_known: Callable[[str], bool] = lambda name: not _label(name)
) -> list[dict[str, Any]]:
    """Return the records of a JSON text: a list of records, one per line, or in any form that pandas writes.

    `is_known` is true of names of columns, and not of names of rows. Raises ValueError where there are no records.
    """
    try:
        document = read(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if error.msg != "Extra data" or len(lines) < 2:
            raise
        document = [read(line) for line in lines]
    records = _records_of(document, is_known) if isinstance(document, dict) else document
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise ValueError("it holds no list of records")
    return records


def _records_of(document: dict[str, Any], is_known: Callable[[str], bool]) -> Any:
    values = list(document.values())
    data, columns = document.get("data"), document.get("columns")
    if isinstance(data, list) and isinstance(columns, list):  # orient="split"
        return [dict(zip(map(_column_name, columns), row, strict=True)) for row in data]
    if isinstance(data, list) and isinstance(document.get("schema"), dict):  # orient="table"
        labels = [name for name in document["schema"].get("primaryKey", ()) if not is_known(name)]
        return [{name: cell for name, cell in row.items() if name not in labels} for row in data]
    if values and all(isinstance(each, dict) for each in values):
        if sum(map(is_known, document)) < max(sum(map(is_known, each)) for each in values):  # orient="index"
            return values
        return _transposed({name: list(cells.values()) for name, cells in document.items()})
    if values and all(isinstance(each, list) and not any(isinstance(c, dict) for c in each) for each in values):
        return _transposed(document)
    lists = [each for each in values if isinstance(each, list)]
    return lists[0] if len(lists) == 1 and all(isinstance(each, dict) for each in lists[0]) else [document]


def _transposed(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    if len({len(cells) for cells in columns.values()}) > 1:
        raise ValueError("its columns are not equally long")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _column_name(name: Any) -> str:
    return "_".join(str(part) for part in name if str(part)) if isinstance(name, list) else str(name)


def _label(name: str) -> bool:
    """Return whether the name is the number of a row."""
    return name.lstrip("-").isdigit()


def unframed(text: str) -> str:
    """Remove the frame that Markdown and database shells draw around cells; other text stays unchanged."""
    lines = text.splitlines(keepends=True)
    if not any(_RULE.fullmatch(line.strip()) for line in lines[:_FIRST_LINES]):
        return text
    rows = [line for line in lines if not _RULE.fullmatch(line.strip())]
    return "".join(re.sub(r"^\s*\||\|\s*$", "", line.rstrip("\r\n")).strip() + "\n" for line in rows)


_RULE = re.compile(r"(?=.*--)(?=.*[|+])[-=:|+\s]+")
_FIRST_LINES = 10
