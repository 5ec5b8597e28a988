"""Files that are there as a whole or not at all, and where results go that a user names a path for."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sizewright.errors import InputError
from sizewright.spec._paths import absolute

_OF_FILES = (".json", ".yaml", ".yml", ".sh", ".csv", ".parquet", ".png", ".svg", ".pdf", ".html")


def file_at(path: str | Path, name: str) -> str:
    """Return the file that a result goes to: `path`, or `name` in it, where it is a folder or ends as one."""
    text = os.fspath(path)
    is_folder = text.endswith(("/", os.sep)) or os.path.isdir(absolute(text))
    return os.path.join(text, name) if is_folder else text


def folder_at(path: str | Path, why: str) -> str:
    """Return the folder that several files go to. Raises InputError, which says `why`, for what is, or is named as, a
    file."""
    text = os.fspath(path)
    is_named_so = text == "-" or (text.lower().endswith(_OF_FILES) and not os.path.isdir(absolute(text)))
    if is_named_so or os.path.isfile(absolute(text)):
        raise InputError(f"{why}, and {text} is a file.", "Name a folder.")
    return text


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a file to write, which takes the place of `path` once it is written; folders above it are made.

    Until then, and where writing fails, the old file stays as it was. What is no plain file, such as /dev/stdout, and a
    file in a folder that takes no new ones, is written to as it is. Raises OSError.
    """
    if Path(path).name == "-":
        raise OSError(errno.EINVAL, "no file is called so (/dev/stdout prints it)", str(path))
    target = Path(os.path.realpath(path))  # a link stays one
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        if not target.is_file() or not os.access(target.parent, os.W_OK):
            yield target
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    written = target.with_name(f".{secrets.token_hex(4)}.{target.name[-200:]}")
    try:
        yield written
        if target.exists():
            written.chmod(target.stat().st_mode & 0o7777)
        written.replace(target)
    except BaseException:
        with suppress(OSError):
            written.unlink()
        raise


def write_whole(path: str | Path, text: str) -> None:
    """Write a text that nobody ever reads half of. Raises OSError, and leaves what was there."""
    with whole_file(path) as file:
        file.write_text(text, encoding="utf-8")
