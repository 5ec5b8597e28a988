"""Write files atomically, and resolve the path that a user names for a result."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sizewright.errors import InputError
from sizewright.spec._paths import absolute

_FILE_SUFFIXES = (".json", ".yaml", ".yml", ".sh", ".csv", ".parquet", ".png", ".svg", ".pdf", ".html")


def result_file(path: str | Path, name: str) -> str:
    """Return the file for a result: `path`, or `name` in it where `path` is a folder or ends with a slash."""
    text = os.fspath(path)
    is_folder = text.endswith(("/", os.sep)) or os.path.isdir(absolute(text))
    return os.path.join(text, name) if is_folder else text


def result_folder(path: str | Path, why: str) -> str:
    """Return the folder for several result files.

    Raises InputError, which begins with `why`, where `path` is a file or is named like one.
    """
    text = os.fspath(path)
    is_file_name = text == "-" or (text.lower().endswith(_FILE_SUFFIXES) and not os.path.isdir(absolute(text)))
    if is_file_name or os.path.isfile(absolute(text)):
        raise InputError(f"{why}, and {text} is a file.", "Name a folder.")
    return text


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file to write, which replaces `path` once it is written; parent folders are created.

    Until then, and where writing fails, the old file stays unchanged. A special file such as /dev/stdout, and a file in
    a read-only folder, is written in place. Raises OSError.
    """
    if Path(path).name == "-":
        raise OSError(errno.EINVAL, "'-' is not a file name (/dev/stdout prints the result)", str(path))
    target = Path(os.path.realpath(path))  # replaces the target of a link, not the link
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        if not target.is_file() or not os.access(target.parent, os.W_OK):
            yield target
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{secrets.token_hex(4)}.{target.name[-200:]}")
    try:
        yield temporary
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_text_atomically(path: str | Path, text: str) -> None:
    """Write a text atomically: readers see the old file or the new one. Raises OSError and keeps the old file."""
    with atomic_file(path) as file:
        file.write_text(text, encoding="utf-8")
