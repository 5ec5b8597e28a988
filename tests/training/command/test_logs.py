from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sizewright.training.command.logs import Log


class Piped:
    """A log, and the end of the pipe that a replica would write to."""

    def __init__(self, path: Path) -> None:
        reads, self.writes = os.pipe()
        self.lines: list[tuple[str, float]] = []
        self.log = Log(os.fdopen(reads, "rb", buffering=0), path, lambda *line: self.lines.append(line))

    def write(self, *chunks: bytes) -> None:
        for chunk in chunks:
            os.write(self.writes, chunk)
            time.sleep(0.02)

    def texts(self, count: int = 0) -> list[str]:
        deadline = time.monotonic() + 10
        while len(self.lines) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return [text for text, _ in self.lines]

    def end(self) -> list[str]:
        os.close(self.writes)
        self.log.close(10)
        return self.texts()


@pytest.fixture
def piped(tmp_path: Path) -> Piped:
    return Piped(tmp_path / "x.log")


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"\r 1/9", b"\r 2/9", b"\r 3/9"], ["1/9", "2/9", "3/9"]),
        ([b"1/9\r2/9\r3/9\r\ndone\r\n"], ["1/9", "2/9", "3/9", "done"]),
        ([b"1/9 [=>..]", b"\b" * 10, b"\r", b"2/9 [==>.]", b"\b" * 10 + b"\r3/9"], ["1/9 [=>..]", "2/9 [==>.]", "3/9"]),
        ([b"\x1b[32mstep\x1b[0m \x1b[1;31m12\x1b[m\x1b[K\n"], ["step 12"]),
        ([b"\x1b]8;;file://x\x1b\\\x1b[2K\x1b[1Astep 3\n"], ["step 3"]),
        ([b"Gr\xf6\xdfe 5\n"], ["Gr\ufffd\ufffde 5"]),
        ([b"ste", b"p 1\nst", b"ep 2"], ["step 1", "step 2"]),
        ([b"\n\r\n  \n\x1b[0m\n"], []),
    ],
)
def test_log_of_bars_and_colours_is_read_line_by_line(piped: Piped, chunks: list[bytes], lines: list[str]) -> None:
    piped.write(*chunks)
    assert piped.end() == lines


def test_line_longer_than_all_buffers_keeps_its_end(piped: Piped) -> None:
    for _ in range(4):
        os.write(piped.writes, b"x" * 40_000)
    os.write(piped.writes, b" step 7\n")
    (line,) = piped.end()
    assert line.endswith(" step 7")


def test_rarely_drawn_bar_is_read_before_its_next_update(piped: Piped) -> None:
    piped.write(b"\r 1/9")
    assert piped.texts(1) == ["1/9"]
    piped.write(b"\r 2/9")
    assert piped.end() == ["1/9", "2/9"]


def test_line_completed_by_a_later_chunk_has_its_own_time(piped: Piped) -> None:
    piped.write(b"\r1/9")
    time.sleep(0.2)
    began = time.monotonic()
    piped.write(b"\r2/9")
    piped.end()
    assert piped.lines[0][1] < began <= piped.lines[1][1]


def test_last_lines_include_an_unfinished_line(piped: Piped) -> None:
    piped.write(b"first\nPassword: ")
    piped.texts(1)
    assert piped.log.last_lines() == ["first", "Password:"]
    piped.end()
