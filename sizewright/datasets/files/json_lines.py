"""Append-only files with one JSON record per line: where a writer dies, only the line that it wrote is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from pydantic import BaseModel

from sizewright.errors import StoreError
from sizewright.formatting import format_bytes
from sizewright.spec._paths import absolute, private

R = TypeVar("R", bound=BaseModel)
_MAX_LINE_BYTES = 4 << 20
_MAX_BYTES = 1 << 30
"""Limit of a file whose lines are all short, such as a device."""


class JsonLines(Generic[R]):
    """Records of one type at `path`; messages call them `what`.

    Raises StoreError where they cannot be read or written.
    """

    def __init__(self, path: str | Path, record: type[R], what: str) -> None:
        self.path, self._record, self._what = Path(absolute(path)), record, what
        self.passed_over = 0
        """Number of invalid lines in the last read."""

    def check(self) -> None:
        """Raise StoreError where the file cannot be written, before anything depends on it."""
        self._append(b"")

    def append(self, record: R) -> None:
        """Append one record; it is on disk when this returns."""
        fields = record.model_dump(mode="json", exclude_defaults=True)
        self._append(json.dumps(fields, ensure_ascii=False).encode() + b"\n")  # keeps NaN, unlike pydantic's own

    def read(self) -> list[R]:
        """Return all records; invalid lines are skipped and counted in `passed_over`."""
        self.passed_over = 0
        if not self.path.exists():
            return []
        try:
            with open(self.path, "rb") as file:
                return list(self._records(file))
        except OSError as error:
            raise self._store_error("read", "from", error) from None

    def _append(self, line: bytes) -> None:
        try:
            with open(self.path, "ab", opener=private) as file:
                if line and file.tell() and not _ends_with_newline(self.path):
                    file.write(b"\n")  # the line that was cut off stays separate
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._store_error("write", "to", error) from None

    def _records(self, file: BinaryIO) -> Iterator[R]:
        size = 0
        while line := file.readline(_MAX_LINE_BYTES + 1):
            size += len(line)
            if len(line) > _MAX_LINE_BYTES:
                raise self._store_error("read", "from", f"a line is longer than {format_bytes(_MAX_LINE_BYTES)}")
            if size > _MAX_BYTES:
                raise self._store_error("read", "from", f"it is longer than {format_bytes(_MAX_BYTES)}")
            try:
                yield self._record.model_validate_json(line)
            except ValueError:
                self.passed_over += 1

    def _store_error(self, verb: str, preposition: str, error: OSError | str) -> StoreError:
        return StoreError(f"Cannot {verb} {self._what} {preposition} {self.path}: {error}.", "Name another file.")


def _ends_with_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
