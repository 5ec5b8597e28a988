"""How training code of any kind tells its progress: `sizewright.log_samples(n)`.

Needs the standard library alone and costs a system call. Each process keeps one small file of sums in the folder that
the environment names, so that nothing grows and nobody waits. Where no folder is shared with whoever looks, as in pods,
it names `stdout`: then a line of sums is printed, with what the container has used, every few seconds. Without either
nothing happens.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from sizewright.container import Usage, own_usage

__all__ = ["STDOUT", "VARIABLE", "Reading", "log_samples", "read_progress"]

VARIABLE = "SIZEWRIGHT_PROGRESS"
"""Names the folder in which processes keep their sums, or `STDOUT`."""
STDOUT = "stdout"
_MARK, _EVERY_S = "sizewright-progress ", 5.0
_RECORD = struct.Struct("<2Q5d")


class Reading(NamedTuple):
    """Sums of one process: samples, calls, when the last one was (monotonic clock), seconds in phases if it told."""

    samples: int = 0
    steps: int = 0
    at_s: float = 0.0
    data_s: float = 0.0
    pull_s: float = 0.0
    compute_s: float = 0.0
    push_s: float = 0.0


def log_samples(
    n: int, *, data_s: float = 0.0, pull_s: float = 0.0, compute_s: float = 0.0, push_s: float = 0.0
) -> None:
    """Say that `n` samples more were trained by this process, and what they took in phases where that is known.

    Call it once a step or every few steps. Raises ValueError for a negative number.
    """
    if n < 0:
        raise ValueError(f"log_samples takes the samples trained since the last call, and {n} is below 0")
    folder = os.environ.get(VARIABLE)
    if folder:
        _progress.add(folder, n, (data_s, pull_s, compute_s, push_s))


class Told(NamedTuple):
    """A line of one process: its sums, and those of its container."""

    process: int
    reading: Reading
    usage: Usage


def read_line(line: str) -> Told | None:
    """What a line of output tells; None for any other line."""
    _, mark, text = line.partition(_MARK)
    try:
        told: dict[str, Any] = json.loads(text) if mark else {}
        reading, usage = Reading(**told["sums"]), Usage(**told["container"])
        if not all(isinstance(value, (int, float)) for value in reading):
            return None
        return Told(int(told["process"]), reading, usage)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def read_progress(folder: str | Path) -> dict[int, Reading]:
    """The sums of every process that has told any, by process number."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError, ValueError, struct.error):
                found[int(entry.name)] = Reading(*_RECORD.unpack(_read_whole(entry.path)))
    return found


def _read_whole(path: str) -> bytes:
    """As it was at one moment: it may be written to meanwhile."""
    before, now = None, Path(path).read_bytes()
    while now != before:
        before, now = now, Path(path).read_bytes()
    return now


class _Progress:
    """The sums of this process; a fork begins its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: str | None = None
        self._file = -1
        self._sums = Reading()
        self._printed_at_s = -_EVERY_S

    def add(self, folder: str, samples: int, phases: tuple[float, float, float, float]) -> None:
        with self._lock:
            if folder != self._folder:
                self._open(folder)
            told = self._sums
            sums = (a + b for a, b in zip(told[3:], phases, strict=True))
            self._sums = Reading(told.samples + int(samples), told.steps + 1, time.monotonic(), *sums)
            if folder == STDOUT:
                self._print_when_due()
                return
            with contextlib.suppress(OSError, struct.error):  # training goes on, whatever becomes of the telling
                os.pwrite(self._file, _RECORD.pack(*self._sums), 0)

    def print(self) -> None:
        """A line of all sums, whole also beside other processes that print; at the end for the last steps."""
        if self._folder != STDOUT:  # a fork that has told nothing
            return
        sums = self._sums._replace(at_s=time.time())._asdict()
        told = {"process": os.getpid(), "sums": sums, "container": own_usage()._asdict()}
        with contextlib.suppress(OSError, ValueError):
            os.write(1, f"\n{_MARK}{json.dumps(told)}\n".encode())
        self._printed_at_s = time.monotonic()

    def _print_when_due(self) -> None:
        if time.monotonic() - self._printed_at_s >= _EVERY_S:
            self.print()

    def begin_anew(self) -> None:
        """After a fork: the parent's file is the parent's."""
        self._lock, self._folder = threading.Lock(), None
        self._printed_at_s = -_EVERY_S
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _open(self, folder: str) -> None:
        self._folder, self._file, self._sums = folder, -1, Reading()
        if folder == STDOUT:
            atexit.register(self.print)
            return
        with contextlib.suppress(OSError):
            self._file = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


_progress = _Progress()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_progress.begin_anew)
