"""Tables of other systems as a data frame: CSV with any separator, JSON, JSON lines or Parquet, compressed or not."""

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

from sizewright.datasets.bounded_parquet import MOST_BYTES, read_parquet
from sizewright.datasets.wrappings import DAMAGES, Reads, Text, check_of, check_size, opened, texts_in
from sizewright.errors import InputError
from sizewright.spec._json import loads

_SEPARATORS = ",;\t|"
_HEAD = 1 << 16
_MOST_TEXT = 256 << 20
"""Of a table of few rows, whose places are kept."""
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
    """A table whose columns are in lower case, without blanks around them; `what` it is in words.

    Where `headerless` says so of the first row, that is data, and columns are numbered. `records` makes a table of a
    list in JSON. Raises InputError with one sentence for what cannot be read.
    """
    path = Path(path)
    with _explained(path, what):
        text = _only_text(path, what, utf_16=True)
        if text.layers and text.layers[-1].kind == "parquet":
            frame: pd.DataFrame = read_parquet(path).to_pandas()
        else:
            check_size(str(path), text.layers, what, MOST_BYTES)
            with opened(str(path), text.layers) as stream:
                if text.line[:2] in _UTF_16:
                    data = stream.read().decode("utf-16").encode()
                    stream, text = io.BytesIO(data), text._replace(line=data.partition(b"\n")[0])
                frame = _read(stream, text, f"The {what} {path}", headerless, records)
    if not len(frame.columns):
        raise InputError(f"Cannot read the {what} {path}: it is empty.", "Check that it was written to its end.")
    return frame.rename(columns=lambda name: str(name).strip().lower())


def read_text(path: str | Path, what: str) -> str:
    """All of a text file in UTF-8, decompressed. Raises InputError with one sentence for what cannot be read."""
    path = Path(path)
    with _explained(path, what):
        text = _only_text(path, what, utf_16=True)
        if text.layers and text.layers[-1].kind == "parquet":
            raise InputError(f"{path} is a Parquet file, where the {what} is to be text.", "Write it as CSV or JSON.")
        check_size(str(path), text.layers, what, _MOST_TEXT)
        with opened(str(path), text.layers) as stream:
            data = stream.read()
        return data.decode("utf-16" if data[:2] in _UTF_16 else "utf-8-sig")


def separator_of(line: str) -> str:
    """What separates the columns of a first line."""
    return max(_SEPARATORS, key=line.count) if line else ","


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Say in one sentence why a file cannot be read."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a {what}.", "Name a file in it.")
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"No {what} at {path}.", "Check the path.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"Cannot read the {what} {path}: {error}.", "Save it as text in UTF-8.") from None
    except (*DAMAGES, ValueError, csv.Error) as error:  # pandas' and pyarrow's are ValueErrors
        if isinstance(error, ValueError) or getattr(error, "errno", None) is not None:
            told = " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
            message, remedy = f"Cannot read the {what} {path}: {told}.", "It is to be CSV, JSON or Parquet."
        else:
            message, remedy = f"The {what} {path} is damaged or cut short.", check_of(str(path))
        raise InputError(message, remedy) from None


def refuse_workbook(path: Path, what: str) -> None:
    """Raises InputError for the file of a spreadsheet program, whatever its name."""
    if path.suffix.lower() in _WORKBOOKS or _is_workbook(path):
        raise InputError(
            f"{path} is a spreadsheet's own file, where the {what} is to be text or Parquet.",
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
    """The first four bytes of a file, which tell most kinds."""
    with path.open("rb") as file:
        return file.read(4)


def check_once(names: Sequence[str], table: str) -> None:
    """Raises InputError for a name that several columns have."""
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{table} has more than one column {twice[0]!r}.", "Keep one of each.")


def number_reader(texts: Iterable[str], separator: str) -> Callable[[str], str] | None:
    """Return what writes the numbers of a table with decimal points, given all of their texts; None where they are so.

    Units may follow a number. Raises ValueError, with the text, where one could be either: commas that all stand before
    three digits, or points that all do in a table as spreadsheets write it where decimals have a comma.
    """
    if separator == ",":
        return None
    numbers = [found[1] for text in texts if (found := _AMOUNT.fullmatch(text))]
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
    """`1.234,5 GiB` as `1234.5 GiB`; what is no number stays."""
    found = _AMOUNT.fullmatch(text)
    if not found or not (_WITH_COMMAS.fullmatch(found[1]) or _GROUPED_BY["."].fullmatch(found[1])):
        return text.strip()
    return re.sub(r"[. '\u00a0\u202f]", "", found[1]).replace(",", ".") + found[2]


def _only_text(path: Path, what: str, *, utf_16: bool = False) -> Text:
    refuse_workbook(path, what)
    texts = list(texts_in(str(path), Reads(what, InputError, json=True, utf_16=utf_16)))
    names = [text.member for text in texts]
    if len(texts) > 1:
        raise InputError(
            f"{path} holds {len(texts)} files: {', '.join(names[:5])}.", "Unpack it, and name one of them."
        )
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
        return (records or pd.DataFrame)(json_records(stream.read().decode("utf-8-sig")))
    if line[:1] in ("|", "+") or _RULE.fullmatch(_second(stream).strip()):
        stream = io.BytesIO(unframed(stream.read().decode("utf-8-sig")).encode())
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
    if not headerless(first):
        check_once([column.lower() for column in first if column], name)
    frame = pd.read_csv(
        data, sep=separator, header=None if headerless(first) else "infer", skipinitialspace=True, encoding="utf-8-sig",
        low_memory=False, index_col=False, dtype=None if separator == "," else str,
    )  # fmt: skip
    return frame if separator == "," else _with_points(frame, separator, name)


def _with_points(frame: pd.DataFrame, separator: str, name: str) -> pd.DataFrame:
    """A table of texts with its numbers as numbers. Raises InputError where a number could be either of two."""
    numbers = [column for column in frame if frame[column].dropna().str.fullmatch(_AMOUNT.pattern).all()]
    try:
        read = number_reader((text for column in numbers for text in frame[column].dropna()), separator)
    except ValueError as error:
        raise InputError(f"{name}: {error}.", NO_SEPARATORS) from None
    made = {str(each): frame[each].map(read, na_action="ignore") if read else frame[each] for each in numbers}
    return frame.assign(**{column: _as_numbers(values) for column, values in made.items()})


def _as_numbers(column: pd.Series) -> pd.Series:
    try:
        return pd.to_numeric(column)
    except ValueError:  # with thousands separators, which later readers know
        return column


NO_SEPARATORS = "Write decimal points and no thousands separators, and separate the cells by commas."


def _second(stream: Any) -> str:
    """A line of numbers, which shows whether fractions have a comma; the stream stays where it is."""
    head = (
        stream.peek(_HEAD)
        if hasattr(stream, "peek")
        else stream.getvalue()[:_HEAD]
        if hasattr(stream, "getvalue")
        else b""
    )
    lines = head.decode(errors="replace").splitlines()
    return lines[1] if len(lines) > 1 else ""


def json_records(
    text: str, read: Callable[[str], Any] = loads, is_known: Callable[[str], bool] = lambda name: not _label(name)
) -> list[dict[str, Any]]:
    """Return the records of a JSON text: a list of them, one a line, or in any form that pandas writes.

    `is_known` tells names of columns from names of rows. Raises ValueError for what holds no records.
    """
    try:
        whole = read(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if error.msg != "Extra data" or len(lines) < 2:
            raise
        whole = [read(line) for line in lines]
    records = _in_rows(whole, is_known) if isinstance(whole, dict) else whole
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise ValueError("it holds no list of records")
    return records


def _in_rows(whole: dict[str, Any], is_known: Callable[[str], bool]) -> Any:
    values = list(whole.values())
    data, columns = whole.get("data"), whole.get("columns")
    if isinstance(data, list) and isinstance(columns, list):  # orient="split"
        return [dict(zip(map(_one_name, columns), row, strict=True)) for row in data]
    if isinstance(data, list) and isinstance(whole.get("schema"), dict):  # orient="table"
        labels = [name for name in whole["schema"].get("primaryKey", ()) if not is_known(name)]
        return [{name: cell for name, cell in row.items() if name not in labels} for row in data]
    if values and all(isinstance(each, dict) for each in values):
        if sum(map(is_known, whole)) < max(sum(map(is_known, each)) for each in values):  # orient="index"
            return values
        return _by_columns({name: list(cells.values()) for name, cells in whole.items()})
    if values and all(isinstance(each, list) and not any(isinstance(c, dict) for c in each) for each in values):
        return _by_columns(whole)
    lists = [each for each in values if isinstance(each, list)]
    return lists[0] if len(lists) == 1 and all(isinstance(each, dict) for each in lists[0]) else [whole]


def _by_columns(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    if len({len(cells) for cells in columns.values()}) > 1:
        raise ValueError("its columns are not equally long")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _one_name(name: Any) -> str:
    return "_".join(str(part) for part in name if str(part)) if isinstance(name, list) else str(name)


def _label(name: str) -> bool:
    """Whether it is the number of a row."""
    return name.lstrip("-").isdigit()


def unframed(text: str) -> str:
    """Return a table without what Markdown and database shells draw around its cells; others as they are."""
    lines = text.splitlines(keepends=True)
    if not any(_RULE.fullmatch(line.strip()) for line in lines[:_FIRST_LINES]):
        return text
    kept = [line for line in lines if not _RULE.fullmatch(line.strip())]
    return "".join(re.sub(r"^\s*\||\|\s*$", "", line.rstrip("\r\n")).strip() + "\n" for line in kept)


_RULE = re.compile(r"(?=.*--)(?=.*[|+])[-=:|+\s]+")
_FIRST_LINES = 10
