"""The files of a click log: find them, detect their format, and cut them into blocks of complete lines."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import Any, BinaryIO, NamedTuple

from sizewright.datasets.files.wrappings import (
    MAX_LINE_BYTES,
    READ_ERRORS,
    Layer,
    ReaderOptions,
    Text,
    check_command,
    criteo_columns,
    find_texts,
    open_text,
)
from sizewright.errors import ClickLogError, InputError
from sizewright.formatting import format_count

_LOG = logging.getLogger(__name__)
_BOM = b"\xef\xbb\xbf"
_SEPARATORS = {b"\t": "tab", b",": "comma", b";": "semicolon", b"|": "bar", b"\x01": "Ctrl-A", b" ": "space"}
_SCANNED_BYTES = 256 << 20
"""A compressed archive larger than this is searched up to its first log only."""


class LogFile(NamedTuple):
    """One text of a click log."""

    path: str
    separator: bytes
    body: int
    """Bytes before the first row (a byte order mark, a header)."""
    header: bool
    layers: tuple[Layer, ...]
    """Compression and archive layers around the text."""
    size: int
    """Bytes on disk."""
    member: str = ""
    """Its name in an archive."""

    @property
    def name(self) -> str:
        """The name that messages show."""
        return f"{self.path}: {self.member}" if self.member else self.path


class Block(NamedTuple):
    """Complete lines of one file."""

    data: bytes
    offset: int
    """Offset of the block in the (decompressed) file, in bytes."""


def find_files(pattern: str, dense_features: int, tables: int) -> tuple[LogFile, ...]:
    """Return the non-empty log files that a path or glob names, sorted.

    Raises ClickLogError when there is no such file, one cannot be read, or its first line is not that of a click log.
    """
    paths = _paths(pattern)
    files = tuple(file for path in paths for file in _logs_in(path, _size_and_mtime(path), dense_features, tables))
    if not files:
        all_files = f"The click log {pattern} is" if len(paths) == 1 else f"All {len(paths)} files of {pattern} are"
        raise ClickLogError(f"{all_files} empty.", "Check that it was written to its end.")
    return files


def cut(file: LogFile, block_bytes: int, first: int, step: int) -> Iterator[Block]:
    """Yield the blocks `first`, `first + step`, … of a file.

    Block k holds the lines that begin in [k, k + 1) · block_bytes after the header, so that every line is in exactly
    one block for any step. A compressed file is decompressed as a whole, whichever blocks are requested.
    """
    with readable(file.path), open_text(file.path, file.layers) as stream:
        stream.seek(file.body)
        index = first
        while True:
            begin = file.body + index * block_bytes
            if stream.tell() < begin:
                stream.seek(begin - 1)
                _line(stream, file.path)  # the rest of a line that began in the previous block
            start = stream.tell()
            if start < begin + block_bytes:
                data = stream.read(begin + block_bytes - start)
                if not data:
                    return
                if not data.endswith(b"\n"):
                    data += _line(stream, file.path)
                yield Block(data, start)
            index += step


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Raise the errors of the operating system and of decompressors as a ClickLogError."""
    try:
        yield
    except READ_ERRORS as error:
        if getattr(error, "errno", None) is not None:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            message, remedy = f"Cannot read the click log {path}: {reason}.", "Check the path and its permissions."
        else:
            message, remedy = f"The compressed click log {path} is damaged or cut short.", check_command(path)
        raise ClickLogError(message, remedy) from None
    except ClickLogError:
        raise
    except InputError as error:
        raise ClickLogError(error.message, error.remedy) from None


def _paths(pattern: str) -> list[str]:
    pattern = os.path.expanduser(pattern)
    if os.path.isdir(pattern):
        names = [name for name in os.listdir(pattern) if not name.startswith((".", "_"))]
        common = Counter(os.path.splitext(name)[1] for name in names).most_common(1)
        like = os.path.join(pattern, f"*{common[0][0] if common else '.gz'}")
        raise ClickLogError(f"{pattern} is a directory, not a click log.", f"Name its files, such as: {like}")
    if os.path.exists(pattern):
        return [pattern]
    if not glob.has_magic(pattern):
        raise ClickLogError(
            f"There is no click log at {pattern}.", "Check the path; relative paths start in the current folder."
        )
    paths = [path for path in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(path)]
    if not paths:
        raise ClickLogError(
            f"No file matches {pattern}.", "Check the pattern; relative paths start in the current folder."
        )
    return paths


def _size_and_mtime(path: str) -> tuple[int, int]:
    with readable(path):
        info = os.stat(path)
    return info.st_size, info.st_mtime_ns


@lru_cache(maxsize=1024)
def _logs_in(path: str, size_and_mtime: tuple[int, int], dense_features: int, tables: int) -> list[LogFile]:
    """Return the logs in a file: the file itself, or the members of an archive that have the expected columns.

    The result is cached until the file changes, so that an archive is searched once.
    """
    size, _ = size_and_mtime
    logs, other_members, faults = [], [], []
    options = ReaderOptions("click log", ClickLogError, partial(_parquet_columns, path, dense_features, tables))
    with readable(path):
        for text in find_texts(path, options):
            try:
                if text.fault:
                    raise text.fault
                file = _inspect(path, size, text, dense_features, tables)
            except InputError as fault:
                if not text.member:
                    raise
                other_members.append(text.member)
                faults.append(fault)
                continue
            if file is not None:
                logs.append(file)
                if file.member and text.layers[0].kind != "zip" and size > _SCANNED_BYTES:
                    _warn(f"{path} is large: only {file.member} is read from it. Unpack the archive to read more.")
                    break
    if other_members and not logs:
        if len(faults) == 1:
            raise faults[0]
        raise ClickLogError(
            f"None of the {len(other_members)} files in {path} is a click log with the expected columns. "
            f"The last: {faults[-1].message}",
            faults[-1].remedy,
        )
    if other_members:
        names = ", ".join(file.member for file in logs[:3])
        _warn(f"{path}: reading {names}. Skipped, since not a click log: {', '.join(other_members[:5])}.")
    return logs


def _inspect(path: str, size: int, text: Text, dense_features: int, tables: int) -> LogFile | None:
    name = f"{path}: {text.member}" if text.member else path
    if len(text.line) >= MAX_LINE_BYTES:
        raise _too_long(name)
    line = text.line.removeprefix(_BOM)
    bom_bytes = len(text.line) - len(line)
    if not line.strip() and not text.more:
        return None
    expected = 1 + dense_features + tables
    bare = line.replace(b'"', b"").rstrip(b"\r\n")
    separator = _separator(bare, expected)
    fields = [field.strip() for field in bare.split(separator)]
    _check_columns(name, fields, separator, dense_features, tables)
    header = not any(_is_number(field) for field in fields[: 1 + dense_features]) and bool(fields[0])
    if header:
        _check_order(name, [field.decode(errors="replace") for field in fields])
    return LogFile(path, separator, len(text.line) if header else bom_bytes, header, text.layers, size, text.member)


def _separator(line: bytes, expected: int) -> bytes:
    """Return the separator that gives the expected number of columns, else the one that gives most columns."""
    counts = {separator: line.count(separator) for separator in _SEPARATORS}
    exact = [separator for separator, count in counts.items() if count == expected - 1]
    if exact or b"\t" in line:
        return exact[0] if exact else b"\t"
    del counts[b" "]
    best = max(counts, key=lambda separator: counts[separator])
    return best if counts[best] else b","


def _check_columns(path: str, fields: Sequence[bytes], separator: bytes, dense_features: int, tables: int) -> None:
    columns, expected = len(fields), 1 + dense_features + tables
    if columns == expected:
        return
    adapt = "set dense_features and tables.count to the columns of the log."
    if re.fullmatch(rb"\S+( \d+:\S+)+ *", b" ".join(fields)):
        remedy = "It looks like libsvm (index:value): write it as columns."
    elif columns == expected - 1:
        remedy = f"One column is missing: is it a test set, without labels? Otherwise {adapt}"
    elif columns == expected + 1:
        remedy = f"There is one more column: is the first an index or an id? Remove it. Otherwise {adapt}"
    else:
        remedy = adapt.capitalize()
    raise ClickLogError(
        f"{path} has {columns} {_SEPARATORS[separator]}-separated column{'s' * (columns != 1)} in its first line, but "
        f"a label, {format_count(dense_features, 'numeric column')} and {format_count(tables, 'table')} make "
        f"{expected}.",
        remedy,
    )


def _check_order(path: str, names: list[str]) -> None:
    """Raise ClickLogError where a header names the columns of a click log in another order."""
    criteo = criteo_columns(names)
    expected = [criteo[0], *criteo[1], *criteo[2]] if criteo else names
    if len(expected) == len(names) and expected != names:
        where = next(number for number, (name, right) in enumerate(zip(names, expected, strict=True)) if name != right)
        raise ClickLogError(
            f"The columns of {path} are in another order: column {where + 1} is {names[where]}, expected "
            f"{expected[where]}.",
            "Write the label first, then the numeric columns, then the categorical ones.",
        )


def _parquet_columns(path: str, dense_features: int, tables: int, schema: Any) -> tuple[str, ...]:
    """Return the columns of a Parquet file to read, chosen by name, else by position.

    Raises ClickLogError where they do not fit.
    """
    names = [name for name in schema.names if not name.startswith("__index_level_")]
    criteo = criteo_columns(names)
    chosen = (criteo[0], *criteo[1], *criteo[2]) if criteo else tuple(names)
    expected = 1 + dense_features + tables
    if criteo and (len(criteo[1]), len(criteo[2])) != (dense_features, tables):
        actual = f"{format_count(len(criteo[1]), 'numeric column')} and {format_count(len(criteo[2]), 'table')}"
    elif len(chosen) != expected:
        actual = f"{format_count(len(chosen), 'column')} ({', '.join(chosen[:3])}, …)"
    else:
        actual = ""
    if actual:
        raise ClickLogError(
            f"The Parquet file {path} has {actual}, but a label, {format_count(dense_features, 'numeric column')} and "
            f"{format_count(tables, 'table')} are expected.",
            "Set dense_features and tables.count to the columns of the log. Columns are read by the names label, I1 … "
            "and C1 …, or in this order.",
        )
    for name in chosen:
        if str(schema.field(name).type).startswith(("list", "large_list", "struct", "map")):
            raise ClickLogError(
                f"The Parquet column {name} of {path} holds lists or records.", "Write one value per row and column."
            )
    if len(set(chosen)) < expected:
        raise ClickLogError(f"{path} has columns of the same name.", "Write one value per row and column.")
    if unread := [name for name in names if name not in chosen]:
        _warn(f"{path}: these columns are not read: {', '.join(unread[:5])}.")
    return chosen


@cache
def _warn(text: str) -> None:
    """Log a warning once, however often the log is opened."""
    _LOG.warning("%s", text)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _line(stream: BinaryIO, path: str) -> bytes:
    line = stream.readline(MAX_LINE_BYTES)
    if len(line) == MAX_LINE_BYTES:
        raise _too_long(path)
    return line


def _too_long(path: str) -> ClickLogError:
    return ClickLogError(f"{path} has a line of more than 1 MiB.", "Check that it is a click log, one row per line.")
