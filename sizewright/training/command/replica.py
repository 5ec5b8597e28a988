"""One replica of a command: a process and its children, limited and measured from outside."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from sizewright.errors import JobError
from sizewright.interrupts import uninterrupted
from sizewright.progress import VARIABLE
from sizewright.spec import Job, LimitedBy, ReplicaMetrics
from sizewright.training.command.logs import Log
from sizewright.training.command.orphan_guard import Guard
from sizewright.training.command.rendezvous import ReplicaCommand, ReplicaSlot
from sizewright.training.command.reports import Report, Reports, counters
from sizewright.training.host.capacity import runqueue_s
from sizewright.training.host.cgroups import PERIOD_US, CgroupTree
from sizewright.training.host.gpus import GpuUse, GpuWatch, gpu_ids, gpu_product
from sizewright.training.host.limits import pin_process

_POLL_S = 0.01
_LINES_OF_OOM = 20  # after which ranks may print what else they saw
_DEVICE_OOM = re.compile(
    r"torch\.(cuda\.)?OutOfMemoryError|(CUDA|HIP) out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation|"
    r"CUBLAS_STATUS_ALLOC_FAILED"
)


class ReplicaObservation(NamedTuple):
    """The state of a replica; the times of its reports are relative to now."""

    metrics: ReplicaMetrics
    reports: list[Report]
    nonsense: str
    counts_from_zero: bool
    exit_code: int | None
    orphans: int
    """Processes that still run after the command itself has ended."""


class Death(NamedTuple):
    """The cause of a replica's end, the place of its log, and which memory ran out, if any."""

    message: str
    remedy: str
    oom_memory: Literal["host", "device"] | None


class CommandReplica:
    """Runs one process of a command, once.

    `logs` is the folder of its log. `tree` is the control group below which it gets its own.
    """

    def __init__(self, job: Job, slot: ReplicaSlot, batch_size: int, tree: CgroupTree | None, logs: Path) -> None:
        assert job.command is not None
        self.slot = slot
        self._command = job.command
        self._trains_on_gpu = slot.role == "worker" and bool(slot.size.gpu or job.training.device == "cuda")
        self._gpu_watch: GpuWatch | None = None
        self._gpu_product: str | None = None
        self._group = tree.child(slot.name) if tree else None
        self._limited_by: LimitedBy = "none"
        self._progress = logs / f".{slot.name}"
        self._progress.mkdir(parents=True, exist_ok=True)
        self._reports = Reports(job.command.progress, batch_size, self._progress)
        self._path = logs / f"{slot.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._log: Log | None = None
        self._started_at = 0.0
        self._peak_bytes = 0
        self._samples_passed_on = 0
        self._known: dict[int, psutil.Process] = {}  # all its processes so far, for hosts without control groups

    def start(self, start: ReplicaCommand) -> None:
        """Start the process. Raise JobError if the command or its folder does not exist."""
        env = {**os.environ, **start.env, VARIABLE: str(self._progress)}
        self._check(start, env)
        if self._trains_on_gpu:
            ids = gpu_ids(env)
            self._gpu_watch, self._gpu_product = GpuWatch(ids), gpu_product(ids)
        words = start.line
        if self._group:
            self._group.set_memory(self.slot.size.memory_bytes)
            words = self._group.joining(words)
        self._started_at = time.monotonic()
        with uninterrupted():  # an interrupt could leave an unknown process behind
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
        """Set the CPU limit, once the replica trains."""
        if self._group:
            self._group.set_cpu(self.slot.size.cpu)
            self._limited_by = "cgroup"
        else:
            for process in self._processes():
                self._limited_by = pin_process(process.pid, self.slot.size.cpu, self.slot.number)

    def observe(self) -> ReplicaObservation:
        """Return the usage and the new reports of the replica."""
        self._reports.read_log()
        last, now = self._reports.last, time.monotonic()
        processes = list(self._processes())
        new_reports = [report for report in list(self._reports.history) if report.samples > self._samples_passed_on]
        self._samples_passed_on = last.samples
        gpu = self._gpu_watch.use if self._gpu_watch else GpuUse()
        cpu_s = self._group.cpu_used_s() if self._group else sum(map(_cpu_s, processes))
        metrics = ReplicaMetrics(
            role=self.slot.role,
            index=self.slot.number,
            at_s=now,
            cpu_s=cpu_s,
            loader_cpu_s=self._loader_cpu_s(processes, cpu_s),
            throttled_s=self._group.throttled_s() if self._group else 0.0,
            runqueue_s=sum(runqueue_s(process.pid) for process in processes),
            memory_peak_bytes=self._memory_peak(processes),
            limited_by=self._limited_by,
            cfs_period_ms=PERIOD_US / 1000 if self._limited_by == "cgroup" else None,
            last_step_at_s=last.at_s,
            device_memory_bytes=gpu.memory_bytes or 0,
            gpu_busy_s=gpu.busy_s,
            gpu_energy_j=gpu.energy_j,
            gpu_product=self._gpu_product,
            **counters(last),
        )
        exit_code = self._process.poll() if self._process else None
        return ReplicaObservation(
            metrics=metrics,
            reports=[Report(report.at_s - now, report.samples) for report in new_reports],
            nonsense=self._reports.nonsense,
            counts_from_zero=self._reports.counts_from_zero,
            exit_code=exit_code,
            orphans=len(processes) if exit_code is not None else 0,
        )

    def _loader_cpu_s(self, processes: Sequence[psutil.Process], cpu_s: float) -> float | None:
        """Return the CPU seconds of processes that report no samples; None where it is not known which ones report."""
        training = [process for process in processes if process.pid in self._reports.processes]
        if not training or len(training) < len(self._reports.processes):
            return None
        return max(0.0, cpu_s - sum(map(_cpu_s, training)))

    def why(self) -> Death:
        """Return the cause of the replica's end, with the last lines of its log."""
        code = self._process.poll() if self._process else None
        duration_s = time.monotonic() - self._started_at
        oom_memory: Literal["host", "device"] | None = None
        if self._group and self._group.oom_kills():
            oom_memory = "host"
            message = f"{self.slot.name} was ended for using more memory than it was given, after {duration_s:.1f} s."
        elif self._lacked_device_memory():
            oom_memory = "device"
            message = f"{self.slot.name} ended for lack of memory on its GPU, after {duration_s:.1f} s."
        elif code is not None and code < 0:
            message = f"{self.slot.name} was ended by {_signal_name(-code)} after {duration_s:.1f} s."
        else:
            message = f"{self.slot.name} ended with exit code {code} after {duration_s:.1f} s."
        return Death(message + self.last_lines(), f"Its log: {self._path}", oom_memory)

    def _lacked_device_memory(self) -> bool:
        """Return whether the end of the log tells that the memory of a GPU ran out, in PyTorch's or CUDA's words."""
        if self._log:
            self._log.close(0.5)
        return any(_DEVICE_OOM.search(line) for line in (self._log.last_lines(_LINES_OF_OOM) if self._log else ()))

    def last_lines(self) -> str:
        """Return the last lines of the log, as the end of a message."""
        if self._log:
            self._log.close(0.5)
        lines = self._log.last_lines() if self._log else []
        if lines:
            return "".join(["\nIts last lines:", *(f"\n    {line}" for line in lines), "\n"])
        return " It printed no text." if self._log and self._log.written_bytes else " It said nothing."

    def terminate(self) -> None:
        """Send SIGTERM to all processes, at which they may write a checkpoint."""
        self._signal(signal.SIGTERM)

    def ended(self) -> bool:
        """Return whether the command itself has ended."""
        return self._process is None or self._process.poll() is not None

    def kill(self, timeout_s: float = 10.0) -> None:
        """Kill all processes of the replica, and remove its control group."""
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
        if self._gpu_watch:
            self._gpu_watch.close()
            self._gpu_watch = None
        if self._log:
            self._log.close()
        if self._group:
            self._group.remove(grace_s=0.0)
        shutil.rmtree(self._progress, ignore_errors=True)

    def _check(self, start: ReplicaCommand, env: dict[str, str]) -> None:
        folder = Path(self._command.folder)
        if not folder.is_dir():
            raise JobError(f"The command's folder {folder} does not exist.", "Set command.folder to the code's folder.")
        word = start.words[0]
        if shutil.which(str(folder / word) if "/" in word else word, path=env.get("PATH")) is None:
            raise JobError(
                f"The command '{word}' was not found, or may not be run.",
                "Write its full path into command.run, or make it executable.",
            )

    def _memory_peak(self, processes: list[psutil.Process]) -> int:
        """Return the maximum memory so far, without pages of files.

        The host reclaims such pages when it needs them, although they count in the control group's peak.
        """
        now = self._group.unreclaimable_bytes() if self._group else sum(map(_resident_bytes, processes))
        self._peak_bytes = max(self._peak_bytes, now, *map(_process_peak_bytes, processes), 0)
        return self._peak_bytes

    def _processes(self) -> Iterator[psutil.Process]:
        """Yield the running processes of the replica."""
        for pid in self._pids():
            with contextlib.suppress(psutil.Error):
                process = self._known.setdefault(pid, psutil.Process(pid))
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def _pids(self) -> set[int]:
        if self._group:
            return self._group.pids()
        pids = {pid for pid, process in self._known.items() if process.is_running()}
        for pid in [self._process.pid, *pids] if self._process else ():
            with contextlib.suppress(psutil.Error):
                pids |= {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
        return pids

    def _signal(self, number: signal.Signals) -> None:
        for process in list(self._processes()):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port on which no process listens now."""
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


def _process_peak_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
