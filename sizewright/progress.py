"""Report the progress of any training code: `sizewright.log_samples(n)`.

The module needs only the standard library, and a report costs one system call. Each process keeps one small file of
sums in the folder that an environment variable names, so that no file grows and no process waits. Where no folder can
be shared with the reader, as in pods, the variable is `stdout`: then a line with the sums and the container's usage is
printed every few seconds. Without the variable nothing happens.

In a TrainJob of Kubeflow Trainer, the first worker also pushes the progress to the job's status.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from sizewright.container import ContainerUsage, container_usage

if TYPE_CHECKING:
    from sizewright.trainer_status import TrainerStatus

__all__ = ["STDOUT", "TRIAL_VARIABLE", "VARIABLE", "Reading", "log_samples", "read_progress"]

VARIABLE = "SIZEWRIGHT_PROGRESS"
"""Environment variable with the folder of the sums, or `STDOUT`."""
STDOUT = "stdout"
TRIAL_VARIABLE = "SIZEWRIGHT_TRIAL"
"""Environment variable that is set while the code only runs to be measured."""
STATUS_SERVER = "KUBEFLOW_TRAINER_SERVER_URL"
"""Environment variable with the address of Kubeflow Trainer's status server, which its TrainJobs have."""
_MARK = "sizewright-progress "
_EVERY_S = 1.0 if os.environ.get(TRIAL_VARIABLE) else 5.0  # a trial is over within a minute
_RECORD = struct.Struct("<2Q5d")


class Reading(NamedTuple):
    """Sums of one process: samples, calls (`steps`), seconds per phase; and `at_s` of the last call (monotonic)."""

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
    """Report that this process trained `n` more samples and, if known, the seconds that they took in each phase.

    Call it after each step or every few steps. In a TrainJob of Kubeflow Trainer, the process of rank 0 pushes
    percentage, remaining time and samples to `status.trainerStatus` every 5 s. It takes its own samples times the
    number of workers for those of the job, which is exact only if all workers take equal batches. Raises ValueError
    for a negative number.
    """
    if n < 0:
        raise ValueError(f"n must not be below 0, got {n}; pass the samples trained since the last call")
    folder = os.environ.get(VARIABLE)
    if folder:
        _progress.add(folder, n, (data_s, pull_s, compute_s, push_s))
    server = os.environ.get(STATUS_SERVER)
    if server:
        _progress.add_to_status(server, int(n))


class ProgressLine(NamedTuple):
    """A printed line of one process: its sums, and the usage of its container."""

    process: int
    reading: Reading
    usage: ContainerUsage


def read_line(line: str) -> ProgressLine | None:
    """Parse a line of output; None for a line that is not a progress line."""
    _, mark, text = line.partition(_MARK)
    try:
        fields: dict[str, Any] = json.loads(text) if mark else {}
        reading, usage = Reading(**fields["sums"]), ContainerUsage(**fields["container"])
        if not all(isinstance(value, (int, float)) for value in reading):
            return None
        return ProgressLine(int(fields["process"]), reading, usage)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def read_progress(folder: str | Path) -> dict[int, Reading]:
    """Return the sums of every process that reported progress, by process id."""
    readings = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError, ValueError, struct.error):
                readings[int(entry.name)] = Reading(*_RECORD.unpack(_read_consistently(entry.path)))
    return readings


def _read_consistently(path: str) -> bytes:
    """Read a file until two reads agree, since it may be written at the same time."""
    before, now = None, Path(path).read_bytes()
    while now != before:
        before, now = now, Path(path).read_bytes()
    return now


class _Progress:
    """The sums of this process; a forked process starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: str | None = None
        self._file = -1
        self._sums = Reading()
        self._printed_at_s = -_EVERY_S
        self._status: TrainerStatus | None = None

    def add(self, folder: str, samples: int, phases: tuple[float, float, float, float]) -> None:
        with self._lock:
            if folder != self._folder:
                self._open(folder)
            before = self._sums
            phase_sums = (a + b for a, b in zip(before[3:], phases, strict=True))
            self._sums = Reading(before.samples + int(samples), before.steps + 1, time.monotonic(), *phase_sums)
            if folder == STDOUT:
                self._print_when_due()
                return
            with contextlib.suppress(OSError, struct.error):  # a failed report must not stop the training
                os.pwrite(self._file, _RECORD.pack(*self._sums), 0)

    def add_to_status(self, server: str, samples: int) -> None:
        """Add samples to those that are pushed; HTTP is loaded only where there is a server."""
        with self._lock:
            if self._status is None:
                from sizewright.trainer_status import TrainerStatus

                self._status = TrainerStatus(server, os.environ)
        self._status.add(samples)

    def print(self) -> None:
        """Print a line with all sums, in one write so that it stays intact when other processes print; also at exit."""
        if self._folder != STDOUT:  # a forked process that reported nothing
            return
        sums = self._sums._replace(at_s=time.time())._asdict()
        line = {"process": os.getpid(), "sums": sums, "container": container_usage()._asdict()}
        with contextlib.suppress(OSError, ValueError):
            os.write(1, f"\n{_MARK}{json.dumps(line)}\n".encode())
        self._printed_at_s = time.monotonic()

    def _print_when_due(self) -> None:
        if time.monotonic() - self._printed_at_s >= _EVERY_S:
            self.print()

    def reset(self) -> None:
        """Start without sums after a fork, since the file belongs to the parent process."""
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
            self._file = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


_progress = _Progress()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_progress.reset)
