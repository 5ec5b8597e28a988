"""Counted rows of click logs, kept so that the next command need not read the log again.

They lie in `$XDG_CACHE_HOME/sizewright/rows`, one file for each log and question. A log is known by the path, device,
inode, size and time of change of each of its files: one that is written to is counted again. A file of the cache that
is damaged counts as absent, and what cannot be written is not kept.
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

from sizewright.datasets.whole_files import write_whole
from sizewright.spec._json import loads

_VERSION = 1
"""To be raised when the same log is counted otherwise."""
_MOST_FILES = 100
_YOUNG_S = 2.0
"""A file that changed so lately may change once more without a later time of change."""


class RowCache:
    """The answer to one question about one log, as JSON text."""

    def __init__(self, paths: Iterable[str], question: Sequence[Any]) -> None:
        self._paths, self._question = tuple(paths), list(question)
        self._asked = self._key()

    def read(self) -> str | None:
        """Return the answer, or None where it is not known."""
        try:
            told = loads(self._file().read_text(encoding="utf-8"))
            text = str(told["answer"])
            return text if told["sha256"] == _digest(text) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, text: str) -> None:
        """Keep the answer, unless the log changed meanwhile."""
        if self._asked is None or self._key() != self._asked:
            return
        with suppress(OSError):
            self._file().parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file(), json.dumps({"sha256": _digest(text), "answer": text}))
            _prune(self._file().parent)

    def _key(self) -> str | None:
        """None for files of which nobody can say that they stay as they are."""
        try:
            stats = [(os.path.realpath(path), os.stat(path)) for path in self._paths]
        except OSError:
            return None
        if any(time.time() - s.st_mtime < _YOUNG_S for _, s in stats):
            return None
        files = [[path, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns] for path, s in stats]
        return _digest(json.dumps([_VERSION, files, self._question]))

    def _file(self) -> Path:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sizewright" / "rows"
        return folder / f"{self._asked}.json"


def _prune(folder: Path) -> None:
    """Remove what was kept first; another process may do the same."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MOST_FILES]:
        file.unlink(missing_ok=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
