"""The output of a replica, which is written to a file of bounded size and passed on line by line."""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from sizewright.redaction import redacted
from sizewright.spec._paths import private

_MAX_FILE_BYTES = 16 << 20  # of each of two files; older output is dropped
_LAST_LINES = 20
_MAX_SHOWN_LENGTH = 300
_MAX_KEPT_LENGTH = 4096
_MAX_LINE_LENGTH = 1 << 16
_PAUSE_S = 0.5
# A progress bar is redrawn after a carriage return (tqdm) or after as many backspaces as it has letters (Keras).
_BREAK = re.compile(rb"[\r\n\b]+")
_COLOUR = re.compile(rb"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\^_])")

OnLine = Callable[[str, float], None]
"""Takes a line and the time at which it was printed, on the monotonic clock."""


class Log:
    """Reads a replica's output to its end in a thread, so that the replica never waits."""

    def __init__(self, output: BinaryIO, path: Path, on_line: OnLine) -> None:
        self.path = path
        self.written_bytes = 0
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._rest = b""
        self._output, self._on_line = output, on_line
        self._file = open(path, "wb", buffering=0, opener=private)  # noqa: SIM115 (closed when the output ends)
        self._in_file = 0
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"log of {path.name}")
        self._thread.start()

    def last_lines(self, count: int = 5) -> list[str]:
        """Return the last non-empty lines, including an unfinished one."""
        unfinished = _text(self._rest)[:_MAX_KEPT_LENGTH]
        lines = [*self._last, *([unfinished] if unfinished else [])][-count:]
        return [redacted(line)[:_MAX_SHOWN_LENGTH] for line in lines]  # half a secret would not be seen as one

    def close(self, timeout_s: float = 2.0) -> None:
        """Wait for the end of the output, which comes when all processes that may write to it have ended."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        """Read the output; a line has the time of its last letters, since its end may come with the next line."""
        with self._output, self._file:
            is_bar = False
            rest_at_s = 0.0
            more = select.poll()
            more.register(self._output, select.POLLIN)
            while True:
                if is_bar and self._rest and not more.poll(1000 * _PAUSE_S):
                    self._emit(self._rest, rest_at_s)  # a slow progress bar, whose line ends only with the next one
                    self._rest = b""
                if not (chunk := os.read(self._output.fileno(), 1 << 16)):
                    break
                at_s = time.monotonic()
                self._write(chunk)
                output = self._rest + chunk
                *lines, rest = _BREAK.split(output)
                for i, line in enumerate(lines):
                    self._emit(line, rest_at_s if i == 0 and line == self._rest else at_s)
                is_bar = output[len(output) - len(rest) - 1 :][:1] in (b"\r", b"\b") if lines else is_bar
                self._rest, rest_at_s = rest[-_MAX_LINE_LENGTH:], at_s
            self._emit(self._rest, rest_at_s)
            self._rest = b""

    def _emit(self, line: bytes, at_s: float) -> None:
        text = _text(line)
        if text:
            self._last.append(text[:_MAX_KEPT_LENGTH])
            with contextlib.suppress(Exception):  # an error of the receiver must not stop the replica's output
                self._on_line(text, at_s)

    def _write(self, chunk: bytes) -> None:
        self.written_bytes += len(chunk)
        try:
            if self._in_file + len(chunk) > _MAX_FILE_BYTES:
                self._file.close()
                os.replace(self.path, self.path.with_name(self.path.name + ".1"))
                self._file = open(self.path, "wb", buffering=0, opener=private)  # noqa: SIM115
                self._in_file = 0
            self._file.write(chunk)
            self._in_file += len(chunk)
        except OSError:
            return  # a full disk must not end the training


def _text(line: bytes) -> str:
    """Return the visible text of a line."""
    return _COLOUR.sub(b"", line).decode(errors="replace").strip()
