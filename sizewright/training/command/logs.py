"""What a replica prints: kept in a file of bounded size, its last lines at hand, its lines handed on."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_MOST_BYTES = 16 << 20  # of each of two files; what is older is gone
_LAST_LINES, _LONGEST_SHOWN, _LONGEST_LINE = 20, 300, 1 << 16

OnLine = Callable[[str, float], None]
"""A line, and when it was printed, on the monotonic clock."""


class Log:
    """Reads a replica's output to its end, in a thread of its own, so that the replica never waits."""

    def __init__(self, output: BinaryIO, path: Path, on_line: OnLine) -> None:
        self.path = path
        self.written_bytes = 0
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._output, self._on_line = output, on_line
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 (closed when the output ends)
        self._in_file = 0
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"log of {path.name}")
        self._thread.start()

    def last_lines(self, count: int = 5) -> list[str]:
        """The last lines that are not empty."""
        return list(self._last)[-count:]

    def close(self, timeout_s: float = 2.0) -> None:
        """Wait for the end of the output, which comes when all who may write to it have ended."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        rest = b""
        with self._output, self._file:
            while chunk := os.read(self._output.fileno(), 1 << 16):
                at_s = time.monotonic()
                self._write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._tell(line, at_s)
                rest = rest[-_LONGEST_LINE:]
            self._tell(rest, time.monotonic())

    def _tell(self, line: bytes, at_s: float) -> None:
        text = line.decode(errors="replace").strip()
        if text:
            self._last.append(text[:_LONGEST_SHOWN])
            with contextlib.suppress(Exception):  # whatever a line says: the replica must not wait for a reader
                self._on_line(text, at_s)

    def _write(self, chunk: bytes) -> None:
        self.written_bytes += len(chunk)
        try:
            if self._in_file + len(chunk) > _MOST_BYTES:
                self._file.close()
                os.replace(self.path, self.path.with_name(self.path.name + ".1"))
                self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115
                self._in_file = 0
            self._file.write(chunk)
            self._in_file += len(chunk)
        except OSError:
            return  # a full disk ends no training
