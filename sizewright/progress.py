"""How training code of any kind tells its progress: `sizewright.log_samples(n)`.

Needs the standard library alone and costs a system call. Each process keeps one small file of sums in the folder that
the environment names, so that nothing grows and nobody waits; without that folder nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

VARIABLE = "SIZEWRIGHT_PROGRESS"
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

    def add(self, folder: str, samples: int, phases: tuple[float, float, float, float]) -> None:
        with self._lock:
            if folder != self._folder:
                self._open(folder)
            told = self._sums
            sums = (a + b for a, b in zip(told[3:], phases, strict=True))
            self._sums = Reading(told.samples + int(samples), told.steps + 1, time.monotonic(), *sums)
            with contextlib.suppress(OSError, struct.error):  # training goes on, whatever becomes of the telling
                os.pwrite(self._file, _RECORD.pack(*self._sums), 0)

    def begin_anew(self) -> None:
        """After a fork: the parent's file is the parent's."""
        self._lock, self._folder = threading.Lock(), None
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _open(self, folder: str) -> None:
        self._folder, self._file, self._sums = folder, -1, Reading()
        with contextlib.suppress(OSError):
            self._file = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


_progress = _Progress()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_progress.begin_anew)
