"""One replica of a command: a process with all that it starts, limited and measured from outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from sizewright.errors import JobError
from sizewright.interrupts import uninterrupted
from sizewright.progress import VARIABLE
from sizewright.spec import Job, LimitedBy, ReplicaMetrics
from sizewright.training.cgroups import PERIOD_US, CgroupTree
from sizewright.training.command.guard import Guard
from sizewright.training.command.logs import Log
from sizewright.training.command.rendezvous import Seat, Start
from sizewright.training.command.reports import Report, Reports
from sizewright.training.host import runqueue_s
from sizewright.training.limits import pin_process

# Joins its groups as its first act and then becomes the command: what it uses is charged to them from the beginning.
_JOIN = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1"; shift; n=$((n - 1)); done; exec "$@"'
_POLL_S = 0.01


class Look(NamedTuple):
    """What can be seen of a replica; times of reports are seconds ago."""

    metrics: ReplicaMetrics
    told: list[Report]
    nonsense: str
    counts_anew: bool
    exit_code: int | None
    left_behind: int


class Death(NamedTuple):
    """Why a replica ended, where its log is, and whether memory was the cause."""

    message: str
    remedy: str
    oom: bool


class CommandReplica:
    """Started once. `logs` is the folder that its log is kept in; `tree` the groups below which it gets its own."""

    def __init__(self, job: Job, seat: Seat, batch_size: int, tree: CgroupTree | None, logs: Path) -> None:
        assert job.command is not None
        self.seat = seat
        self._command = job.command
        self._group = tree.child(seat.name) if tree else None
        self._limited_by: LimitedBy = "none"
        self._progress = logs / f".{seat.name}"
        self._progress.mkdir(parents=True, exist_ok=True)
        self._reports = Reports(job.command.progress, batch_size, self._progress)
        self._path = logs / f"{seat.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._log: Log | None = None
        self._started_at = 0.0
        self._peak_bytes = 0
        self._seen = 0
        self._known: dict[int, psutil.Process] = {}  # without a control group: every process of it that was seen

    def start(self, start: Start) -> None:
        """Begin. Raises JobError for a command or folder that is not there."""
        env = {**os.environ, **start.env, VARIABLE: str(self._progress)}
        self._check(start, env)
        words = list(start.words)
        if self._group:
            self._group.set_memory(self.seat.size.memory_bytes)
            places = [str(folder / "cgroup.procs") for folder in set(self._group.folders.values())]
            words = ["/bin/sh", "-c", _JOIN, "sizewright", str(len(places)), *places, *words]
        self._started_at = time.monotonic()
        with uninterrupted():  # else nobody might know of its process
            self._process = subprocess.Popen(
                words,
                cwd=self._command.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
            self._guard = Guard(self._process.pid, set(self._group.folders.values()) if self._group else ())
            assert self._process.stdout is not None
            self._log = Log(self._process.stdout, self._path, self._reports.line)  # type: ignore[arg-type]

    def hold(self) -> None:
        """Put the CPU limit on, once it trains."""
        if self._group:
            self._group.set_cpu(self.seat.size.cpu)
            self._limited_by = "cgroup"
        else:
            for process in self._processes():
                self._limited_by = pin_process(process.pid, self.seat.size.cpu, self.seat.number)

    def look(self) -> Look:
        """What it has used and told; reports are told once."""
        self._reports.look()
        last, now = self._reports.last, time.monotonic()
        processes = list(self._processes())
        told = [report for report in list(self._reports.told) if report.samples > self._seen]
        self._seen = last.samples
        metrics = ReplicaMetrics(
            role=self.seat.role,
            index=self.seat.number,
            at_s=now,
            cpu_s=self._group.cpu_used_s() if self._group else sum(map(_cpu_s, processes)),
            throttled_s=self._group.throttled_s() if self._group else 0.0,
            runqueue_s=sum(runqueue_s(process.pid) for process in processes),
            memory_peak_bytes=self._memory_peak(processes),
            limited_by=self._limited_by,
            cfs_period_ms=PERIOD_US / 1000 if self._limited_by == "cgroup" else None,
            steps=last.steps,
            samples=last.samples,
            last_step_at_s=last.at_s,
            data_s=last.data_s,
            pull_s=last.pull_s,
            compute_s=last.compute_s,
            push_s=last.push_s,
        )
        code = self._process.poll() if self._process else None
        left = len(processes) if code is not None else 0
        return Look(
            metrics,
            [Report(r.at_s - now, r.samples) for r in told],
            self._reports.nonsense,
            self._reports.counts_anew,
            code,
            left,
        )

    def why(self) -> Death:
        """What to say of one that has ended by itself, with its last lines."""
        code = self._process.poll() if self._process else None
        lasted = time.monotonic() - self._started_at
        oom = bool(self._group and self._group.oom_kills())
        if oom:
            told = f"{self.seat.name} was ended for using more memory than it was given, after {lasted:.1f} s."
        elif code is not None and code < 0:
            told = f"{self.seat.name} was ended by {_signal_name(-code)} after {lasted:.1f} s."
        else:
            told = f"{self.seat.name} ended with exit code {code} after {lasted:.1f} s."
        return Death(told + self.last_lines(), f"Its log: {self._path}", oom)

    def last_lines(self) -> str:
        """Of its log, as the end of a message."""
        if self._log:
            self._log.close(0.5)
        lines = self._log.last_lines() if self._log else []
        if lines:
            return "".join(["\nIts last lines:", *(f"\n    {line}" for line in lines), "\n"])
        return " It printed no text." if self._log and self._log.written_bytes else " It said nothing."

    def terminate(self) -> None:
        """Ask all its processes to end: it may write a checkpoint."""
        self._signal(signal.SIGTERM)

    def ended(self) -> bool:
        """Whether the command itself has ended."""
        return self._process is None or self._process.poll() is not None

    def kill(self, timeout_s: float = 10.0) -> None:
        """End every process of it, whatever it does against that, and remove its group."""
        if self._group:
            self._group.set_cpu(None)  # a throttled process takes seconds to end
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._signal(signal.SIGKILL)
            if self.ended() and not any(True for _ in self._processes()):
                break
            time.sleep(_POLL_S)
        if self._guard:
            self._guard.dismiss()
            self._guard = None
        if self._log:
            self._log.close()
        if self._group:
            self._group.remove(grace_s=0.0)
        shutil.rmtree(self._progress, ignore_errors=True)

    def _check(self, start: Start, env: dict[str, str]) -> None:
        folder = Path(self._command.folder)
        if not folder.is_dir():
            raise JobError(f"The command's folder {folder} does not exist.", "Set command.folder to the code's folder.")
        word = start.words[0]
        found = shutil.which(str(folder / word) if "/" in word else word, path=env.get("PATH"))
        if found is None:
            raise JobError(
                f"The command '{word}' was not found, or may not be run.",
                "Write its whole path into command.run, or make it executable.",
            )

    def _memory_peak(self, processes: list[psutil.Process]) -> int:
        """The greatest of what was seen: of files that were read, the host gives pages back when it needs them, so
        they do not count, unlike in the group's own peak."""
        now = self._group.memory_held_bytes() if self._group else sum(map(_resident_bytes, processes))
        self._peak_bytes = max(self._peak_bytes, now, *map(_own_peak_bytes, processes), 0)
        return self._peak_bytes

    def _processes(self) -> Iterator[psutil.Process]:
        """All that are there."""
        for pid in self._pids():
            with contextlib.suppress(psutil.Error):
                process = self._known.setdefault(pid, psutil.Process(pid))
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def _pids(self) -> set[int]:
        if self._group:
            return self._group.pids()
        found = {pid for pid, process in self._known.items() if process.is_running()}
        for pid in [self._process.pid, *found] if self._process else ():
            with contextlib.suppress(psutil.Error):
                found |= {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
        return found

    def _signal(self, number: signal.Signals) -> None:
        for process in list(self._processes()):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def _cpu_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def _resident_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def _own_peak_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
