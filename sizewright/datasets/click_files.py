"""Files of a click log: which there are, what form they have, and how they are cut into blocks of whole lines."""

from __future__ import annotations

import glob
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, cast

from sizewright.errors import ClickLogError

LONGEST_LINE = 1 << 20
_BOM = b"\xef\xbb\xbf"


class LogFile(NamedTuple):
    """One file of a click log."""

    path: str
    separator: bytes
    body: int
    """Bytes before the first row: a byte order mark, a header."""
    header: bool
    compressed: bool
    size: int
    """Bytes on disk."""


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
    found = [_inspect(path, dense_features, tables) for path in paths]
    files = tuple(file for file in found if file is not None)
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
    with readable(file.path), _open(file.path, file.compressed) as stream:
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
    """Turns what the operating system or gzip says of a file into a ClickLogError."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise ClickLogError(
            f"The compressed click log {path} is damaged or cut short.", f"Check it with: gzip -t {path}"
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ClickLogError(f"Cannot read the click log {path}: {reason}.", "Check the path and its rights.") from None


def _paths(pattern: str) -> list[str]:
    pattern = os.path.expanduser(pattern)
    if os.path.isdir(pattern):
        raise ClickLogError(f"{pattern} is a directory, not a click log.", f"Name its files, such as: {pattern}/*.gz")
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


def _inspect(path: str, dense_features: int, tables: int) -> LogFile | None:
    with readable(path):
        with open(path, "rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
        with _open(path, compressed) as stream:
            line = _line(stream, path)
            more = bool(stream.read(1))
        size = os.path.getsize(path)
    text = line.removeprefix(_BOM)
    mark = len(line) - len(text)
    if not text.strip() and not more:
        return None
    separator = b"\t" if b"\t" in text else b","
    fields = text.replace(b'"', b"").rstrip(b"\r\n").split(separator)
    _check_columns(path, len(fields), separator, dense_features, tables)
    header = not any(_is_number(field) for field in fields[: 1 + dense_features]) and bool(fields[0].strip())
    return LogFile(path, separator, len(line) if header else mark, header, compressed, size)


def _check_columns(path: str, found: int, separator: bytes, dense_features: int, tables: int) -> None:
    wanted = 1 + dense_features + tables
    if found == wanted:
        return
    kind = "tab" if separator == b"\t" else "comma"
    remedy = "Set dense_features and tables.count to what the log has."
    if found == wanted - 1:
        remedy = "One is missing: is it a test set, without labels? Otherwise " + remedy[0].lower() + remedy[1:]
    raise ClickLogError(
        f"{path} has {found} {kind}-separated column{'s' * (found != 1)} in its first line, but a label, "
        f"{dense_features} numeric columns and {tables} tables make {wanted}.",
        remedy,
    )


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _open(path: str, compressed: bool) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if compressed else open(path, "rb")


def _line(stream: BinaryIO, path: str) -> bytes:
    line = stream.readline(LONGEST_LINE)
    if len(line) == LONGEST_LINE:
        raise ClickLogError(f"{path} has a line of more than 1 MiB.", "Check that it is a click log, one row a line.")
    return line
