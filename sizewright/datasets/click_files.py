"""Files of a click log: which there are, what form they have, and how they are cut into blocks of whole lines."""

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

from sizewright.datasets.wrappings import (
    DAMAGES,
    LONGEST_LINE,
    Layer,
    Reads,
    Text,
    check_of,
    named_columns,
    opened,
    texts_in,
)
from sizewright.errors import ClickLogError, InputError
from sizewright.spec.units import format_count

_LOG = logging.getLogger(__name__)
_BOM = b"\xef\xbb\xbf"
_SEPARATORS = {b"\t": "tab", b",": "comma", b";": "semicolon", b"|": "bar", b"\x01": "Ctrl-A", b" ": "space"}
_SCANNED_BYTES = 256 << 20
"""A compressed archive larger than this is looked through up to its first log only."""


class LogFile(NamedTuple):
    """One text of a click log."""

    path: str
    separator: bytes
    body: int
    """Bytes before the first row: a byte order mark, a header."""
    header: bool
    layers: tuple[Layer, ...]
    """What it is wrapped in."""
    size: int
    """Bytes on disk."""
    member: str = ""
    """Its name in an archive."""

    @property
    def name(self) -> str:
        """As messages show it."""
        return f"{self.path}: {self.member}" if self.member else self.path


class Block(NamedTuple):
    """Whole lines of one file."""

    data: bytes
    offset: int
    """Where the block begins in the (decompressed) file, in bytes."""


def find_files(pattern: str, dense_features: int, tables: int) -> tuple[LogFile, ...]:
    """The log files that a path or glob names, sorted, empty ones left out.

    Raises ClickLogError when there is none, one cannot be read, or its first line is not of a click log.
    """
    paths = _paths(pattern)
    files = tuple(file for path in paths for file in _logs_in(path, _stamp(path), dense_features, tables))
    if not files:
        what = (
            f"The click log {pattern} is empty" if len(paths) == 1 else f"All {len(paths)} files of {pattern} are empty"
        )
        raise ClickLogError(f"{what}.", "Check that it was written to its end.")
    return files


def cut(file: LogFile, block_bytes: int, first: int, step: int) -> Iterator[Block]:
    """Blocks `first`, `first + step`, … of a file.

    Block k holds the lines that begin in [k, k + 1) · block_bytes after the header, so that every line is in exactly
    one block whatever the step. A compressed file is decompressed as a whole, whichever blocks are asked for.
    """
    with readable(file.path), opened(file.path, file.layers) as stream:
        stream.seek(file.body)
        index = first
        while True:
            begin = file.body + index * block_bytes
            if stream.tell() < begin:
                stream.seek(begin - 1)
                _line(stream, file.path)  # it began in the block before
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
    """Turns what the operating system or a decompressor says of a file into a ClickLogError."""
    try:
        yield
    except DAMAGES as error:
        if getattr(error, "errno", None) is not None:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            message, remedy = f"Cannot read the click log {path}: {reason}.", "Check the path and its rights."
        else:
            message, remedy = f"The compressed click log {path} is damaged or cut short.", check_of(path)
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
            f"There is no click log at {pattern}.", "Check the path; relative ones start where you are."
        )
    paths = [path for path in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(path)]
    if not paths:
        raise ClickLogError(f"No file matches {pattern}.", "Check the pattern; relative ones start where you are.")
    return paths


def _stamp(path: str) -> tuple[int, int]:
    """Changes when the file does."""
    with readable(path):
        told = os.stat(path)
    return told.st_size, told.st_mtime_ns


@lru_cache(maxsize=1024)
def _logs_in(path: str, stamp: tuple[int, int], dense_features: int, tables: int) -> list[LogFile]:
    """The logs in a file: itself, or the members of an archive that have the right columns.

    They are kept as long as the file stays as it was: an archive is looked through once.
    """
    size, _ = stamp
    found, others, faults = [], [], []
    reads = Reads("click log", ClickLogError, partial(_parquet_columns, path, dense_features, tables))
    with readable(path):
        for text in texts_in(path, reads):
            try:
                if text.fault:
                    raise text.fault
                file = _inspect(path, size, text, dense_features, tables)
            except InputError as fault:
                if not text.member:
                    raise
                others.append(text.member)
                faults.append(fault)
                continue
            if file is not None:
                found.append(file)
                if file.member and text.layers[0].kind != "zip" and size > _SCANNED_BYTES:
                    _warn(f"{path} is large: of it, {file.member} alone is read. Unpack it to read more.")
                    break
    if others and not found:
        raise (
            faults[0]
            if len(faults) == 1
            else ClickLogError(
                f"None of the {len(others)} files in {path} is such a click log; the last: {faults[-1].message}",
                faults[-1].remedy,
            )
        )
    if others:
        logs = ", ".join(file.member for file in found[:3])
        _warn(f"Of {path}, {logs} is read, and left out as no such log: {', '.join(others[:5])}.")
    return found


def _inspect(path: str, size: int, text: Text, dense_features: int, tables: int) -> LogFile | None:
    name = f"{path}: {text.member}" if text.member else path
    if len(text.line) >= LONGEST_LINE:
        raise _too_long(name)
    line = text.line.removeprefix(_BOM)
    mark = len(text.line) - len(line)
    if not line.strip() and not text.more:
        return None
    wanted = 1 + dense_features + tables
    bare = line.replace(b'"', b"").rstrip(b"\r\n")
    separator = _separator(bare, wanted)
    fields = [field.strip() for field in bare.split(separator)]
    _check_columns(name, fields, separator, dense_features, tables)
    header = not any(_is_number(field) for field in fields[: 1 + dense_features]) and bool(fields[0])
    if header:
        _check_order(name, [field.decode(errors="replace") for field in fields])
    return LogFile(path, separator, len(text.line) if header else mark, header, text.layers, size, text.member)


def _separator(line: bytes, wanted: int) -> bytes:
    """The one that gives so many columns, else the one that gives most."""
    counts = {separator: line.count(separator) for separator in _SEPARATORS}
    exact = [separator for separator, count in counts.items() if count == wanted - 1]
    if exact or b"\t" in line:
        return exact[0] if exact else b"\t"
    del counts[b" "]
    most = max(counts, key=lambda separator: counts[separator])
    return most if counts[most] else b","


def _check_columns(path: str, fields: Sequence[bytes], separator: bytes, dense_features: int, tables: int) -> None:
    found, wanted = len(fields), 1 + dense_features + tables
    if found == wanted:
        return
    remedy = "Set dense_features and tables.count to what the log has."
    if re.fullmatch(rb"\S+( \d+:\S+)+ *", b" ".join(fields)):
        remedy = "It looks like libsvm (index:value): write it as columns."
    elif found == wanted - 1:
        remedy = "One is missing: is it a test set, without labels? Otherwise " + remedy[0].lower() + remedy[1:]
    elif found == wanted + 1:
        remedy = (
            "It has one more: is the first an index or an id? Leave it out. Otherwise " + remedy[0].lower() + remedy[1:]
        )
    raise ClickLogError(
        f"{path} has {found} {_SEPARATORS[separator]}-separated column{'s' * (found != 1)} in its first line, but a "
        f"label, {format_count(dense_features, 'numeric column')} and {format_count(tables, 'table')} make {wanted}.",
        remedy,
    )


def _check_order(path: str, names: list[str]) -> None:
    """Raises ClickLogError where a header names the columns of a click log in another order."""
    known = named_columns(names)
    wanted = [known[0], *known[1], *known[2]] if known else names
    if len(wanted) == len(names) and wanted != names:
        where = next(number for number, (name, right) in enumerate(zip(names, wanted, strict=True)) if name != right)
        raise ClickLogError(
            f"The columns of {path} are in another order: column {where + 1} is {names[where]}, where {wanted[where]} "
            "is read.",
            "Write the label first, then the numeric columns, then the categorical ones.",
        )


def _parquet_columns(path: str, dense_features: int, tables: int, schema: Any) -> tuple[str, ...]:
    """The columns of a Parquet file by their names, else by their places. Raises ClickLogError for others."""
    names = [name for name in schema.names if not name.startswith("__index_level_")]
    known = named_columns(names)
    chosen = (known[0], *known[1], *known[2]) if known else tuple(names)
    wanted = 1 + dense_features + tables
    if known and (len(known[1]), len(known[2])) != (dense_features, tables):
        what = f"{format_count(len(known[1]), 'numeric column')} and {format_count(len(known[2]), 'table')}"
    elif len(chosen) != wanted:
        what = f"{format_count(len(chosen), 'column')} ({', '.join(chosen[:3])}, …)"
    else:
        nested = [
            name for name in chosen if str(schema.field(name).type).startswith(("list", "large_list", "struct", "map"))
        ]
        if nested or len(set(chosen)) < wanted:
            raise ClickLogError(
                f"The Parquet column {nested[0]} of {path} holds lists or records."
                if nested
                else f"{path} has columns of the same name.",
                "Write one value a row and column.",
            )
        if left := [name for name in names if name not in chosen]:
            _warn(f"{path}: these columns are not read: {', '.join(left[:5])}.")
        return chosen
    raise ClickLogError(
        f"The Parquet file {path} has {what}, but a label, "
        f"{format_count(dense_features, 'numeric column')} and {format_count(tables, 'table')} are wanted.",
        "Set dense_features and tables.count to what the log has; columns are read by the names label, I1 … and C1 …, "
        "or in this order.",
    )


@cache
def _warn(text: str) -> None:
    """Say it once, however often the log is opened."""
    _LOG.warning("%s", text)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _line(stream: BinaryIO, path: str) -> bytes:
    line = stream.readline(LONGEST_LINE)
    if len(line) == LONGEST_LINE:
        raise _too_long(path)
    return line


def _too_long(path: str) -> ClickLogError:
    return ClickLogError(f"{path} has a line of more than 1 MiB.", "Check that it is a click log, one row a line.")
