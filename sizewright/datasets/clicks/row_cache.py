"""A cache of counted rows of click logs, so that the next command need not read the log again.

Entries lie in `$XDG_CACHE_HOME/sizewright/rows`, one file for each log and query. A log is identified by the path,
device, inode, size and modification time of each of its files, so that a changed log is counted again. A damaged cache
file counts as absent, and an entry that cannot be written is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sizewright.datasets.files.atomic_write import write_text_atomically
from sizewright.settings import EnvironmentSettings
from sizewright.spec._json import loads

_VERSION = 1
"""Raise it when the way of counting changes."""
_MAX_FILES = 100
_MIN_AGE_S = 2.0
"""A file that changed more recently may change again without a later modification time."""


class RowCache:
    """The cached answer to one query about one log, as JSON text."""

    def __init__(self, paths: Iterable[str], query: Sequence[Any]) -> None:
        self._paths, self._query = tuple(paths), list(query)
        self._key_at_start = self._key()

    def read(self) -> str | None:
        """Return the answer, or None where it is not cached."""
        try:
            entry = loads(self._file().read_text(encoding="utf-8"))
            text = str(entry["answer"])
            return text if entry["sha256"] == _digest(text) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, text: str) -> None:
        """Cache the answer, unless the log changed since the cache was opened."""
        if self._key_at_start is None or self._key() != self._key_at_start:
            return
        with suppress(OSError):
            self._file().parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(self._file(), json.dumps({"sha256": _digest(text), "answer": text}))
            _prune(self._file().parent)

    def _key(self) -> str | None:
        """Return the key of the entry, or None where a file is missing or changed too recently."""
        try:
            stats = [(os.path.realpath(path), os.stat(path)) for path in self._paths]
        except OSError:
            return None
        if any(time.time() - s.st_mtime < _MIN_AGE_S for _, s in stats):
            return None
        files = [[path, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns] for path, s in stats]
        return _digest(json.dumps([_VERSION, files, self._query]))

    def _file(self) -> Path:
        return EnvironmentSettings.from_environment().cache_folder / "rows" / f"{self._key_at_start}.json"


def _prune(folder: Path) -> None:
    """Remove the oldest entries; another process may do the same."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MAX_FILES]:
        file.unlink(missing_ok=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
