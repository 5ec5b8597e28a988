"""Resolve the paths that users write, so that other processes in other working folders find the same files."""

from __future__ import annotations

import glob
import os
import re
import stat
from contextlib import suppress
from pathlib import Path


def absolute(path: str | Path, folder: str | Path = "") -> str:
    """Return the absolute path; `~` is expanded, and relative paths count from `folder` or the working folder."""
    return os.path.abspath(os.path.join(folder, os.path.expanduser(path)))


def private(path: str | Path, flags: int) -> int:
    """Open a file as an `opener` of `open`; only this user may read or write a file that it creates.

    A file that it opens for writing becomes private, too.
    """
    file = os.open(path, flags, 0o600)
    if flags & os.O_ACCMODE != os.O_RDONLY:
        make_private(file)
    return file


def make_private(file: str | int) -> None:
    """Take all permissions of others away from a file of this user, by its path or descriptor.

    Earlier versions left some. Other users' files, devices and what cannot be changed stay as they are.
    """
    with suppress(OSError):
        status = os.stat(file)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o077:
            os.chmod(file, status.st_mode & 0o700)


def absolute_pattern(path: str | Path, folder: str | Path = "") -> str:
    """Return the absolute form of a path or glob; special characters in the folder above it are escaped."""
    if not glob.has_magic(str(path)):
        return absolute(path, folder)
    return absolute(path, glob.escape(absolute(folder)))


def absolute_url(url: str) -> str:
    """Return a database URL with the absolute path of its SQLite file; other URLs are returned unchanged."""
    file = url.removeprefix("sqlite:///")
    if file in (url, "", ":memory:") or file.startswith("file:"):
        return url
    return f"sqlite:///{absolute(file)}"


def folder_of(file: str | Path) -> str:
    """Return the folder that paths in a file are relative to; for a pipe it is the working folder."""
    path = absolute(file)
    return os.path.dirname(path) if os.path.isfile(path) else os.getcwd()


_ABSOLUTE = re.compile(r"""(?<![^\s=:,;'"(\[])~?/(?!/)[^\s:,;'")\]]*""")


def without_folders(text: str) -> str:
    """Return the text with every absolute path in it cut to its last part."""
    return _ABSOLUTE.sub(lambda path: path.group().rstrip("/").rpartition("/")[2] or "/", text)
