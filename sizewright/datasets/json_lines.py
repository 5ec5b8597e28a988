"""Files that only grow, a record a line: what was cut off when a writer died costs itself only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

from sizewright.errors import StoreError
from sizewright.spec._paths import absolute, private

R = TypeVar("R", bound=BaseModel)


class JsonLines(Generic[R]):
    """Records at `path`; `what` they are in words. Raises StoreError where they cannot be read or written."""

    def __init__(self, path: str | Path, record: type[R], what: str) -> None:
        self.path, self._record, self._what = Path(absolute(path)), record, what
        self.passed_over = 0
        """Lines that were none when it was read last."""

    def check(self) -> None:
        """That it can be written, before anything depends on it."""
        self._append(b"")

    def append(self, record: R) -> None:
        """It is on disk when this returns."""
        told = record.model_dump(mode="json", exclude_defaults=True)
        self._append(json.dumps(told, ensure_ascii=False).encode() + b"\n")  # keeps NaN, unlike pydantic's own

    def read(self) -> list[R]:
        """All of them; a line that is none is passed over."""
        if not self.path.exists():
            return []
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError as error:
            raise self._fault("read", "from", error) from None
        records = list(self._records(lines))
        self.passed_over = len(lines) - len(records)
        return records

    def _append(self, line: bytes) -> None:
        try:
            with open(self.path, "ab", opener=private) as file:
                if line and file.tell() and not _ends_whole(self.path):
                    file.write(b"\n")  # what was cut off stays a line of its own
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._fault("write", "to", error) from None

    def _records(self, lines: list[bytes]) -> Iterator[R]:
        for line in lines:
            try:
                yield self._record.model_validate_json(line)
            except ValueError:
                continue

    def _fault(self, does: str, to: str, error: OSError) -> StoreError:
        return StoreError(f"Cannot {does} {self._what} {to} {self.path}: {error}.", "Name another file.")


def _ends_whole(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
