"""Tables of other systems as a data frame: CSV with any separator, JSON, JSON lines or Parquet, compressed or not."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from sizewright.datasets.wrappings import DAMAGES, Reads, Text, check_of, opened, texts_in
from sizewright.errors import InputError

_SEPARATORS = ",;\t|"
_HEAD = 1 << 16


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
        text = _only_text(path, what)
        if text.layers and text.layers[-1].kind == "parquet":
            frame = pd.read_parquet(path)
        else:
            with opened(str(path), text.layers) as stream:
                frame = _read(stream, text, headerless, records)
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
        with opened(str(path), text.layers) as stream:
            data = stream.read()
        return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")


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
    except RecursionError:
        raise InputError(f"Cannot read the {what} {path}: it holds lists in lists without end.", "Check it.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"Cannot read the {what} {path}: {error}.", "Save it as text in UTF-8.") from None
    except (*DAMAGES, ValueError, csv.Error) as error:  # pandas' and pyarrow's are ValueErrors
        if isinstance(error, ValueError) or getattr(error, "errno", None) is not None:
            told = " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
            message, remedy = f"Cannot read the {what} {path}: {told}.", "It is to be CSV, JSON or Parquet."
        else:
            message, remedy = f"The {what} {path} is damaged or cut short.", check_of(str(path))
        raise InputError(message, remedy) from None


def _only_text(path: Path, what: str, *, utf_16: bool = False) -> Text:
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
    stream: BinaryIO, text: Text, headerless: Callable[[list[str]], bool],
    records: Callable[[list[Any]], pd.DataFrame] | None,
) -> pd.DataFrame:  # fmt: skip
    line = text.line.decode("utf-8-sig").strip()
    if line[:1] in ("[", "{"):
        return (records or pd.DataFrame)(_records(stream.read().decode("utf-8-sig")))
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
    comma = separator != "," and bool(re.search(rf"(^|[{_SEPARATORS}])\d+,\d+([{_SEPARATORS}]|$)", _second(data)))
    return pd.read_csv(
        data, sep=separator, header=None if headerless(first) else "infer", skipinitialspace=True, encoding="utf-8-sig",
        low_memory=False, decimal="," if comma else ".", index_col=False,
    )  # fmt: skip


def _second(stream: Any) -> str:
    """A line of numbers, which shows whether fractions have a comma; the stream stays where it is."""
    head = stream.peek(_HEAD) if hasattr(stream, "peek") else stream.getvalue()[:_HEAD]
    lines = head.decode(errors="replace").splitlines()
    return lines[1] if len(lines) > 1 else ""


def _records(text: str) -> list[Any]:
    """A list, the only list of an object, or one record a line."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if error.msg != "Extra data" or not lines:
            raise
        return [json.loads(line) for line in lines]
    if isinstance(whole, dict):
        lists = [each for each in whole.values() if isinstance(each, list)]
        whole = lists[0] if len(lists) == 1 else [whole]
    if not isinstance(whole, list) or not all(isinstance(each, dict) for each in whole):
        raise ValueError("its JSON is no list of records")
    return whole
