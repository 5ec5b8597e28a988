"""CPU and memory limits of one replica, by control groups if available, otherwise by affinity to whole cores."""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sizewright.datasets.malloc import release_freed_memory
from sizewright.errors import LimitError, ReplicaDiedError
from sizewright.formatting import format_bytes
from sizewright.spec import LimitedBy
from sizewright.training.host.capacity import runqueue_s
from sizewright.training.host.cgroups import DEFAULT_WEIGHT, PERIOD_US, CgroupTree


@dataclass(frozen=True)
class ReplicaUsage:
    """The usage of a replica since it began: CPU seconds, throttled and queued seconds, and its memory peak."""

    at_s: float
    cpu_s: float
    throttled_s: float
    runqueue_s: float
    memory_peak_bytes: int


class ReplicaLimits:
    """Limits the current process.

    It must be created first in the replica's process, because memory is charged to the group of its first use.
    """

    def __init__(self, tree: CgroupTree | None, name: str) -> None:
        self._group = tree.child(name) if tree else None
        self._limited_by: LimitedBy = "none"
        self._initial_bytes = _status_bytes("VmRSS")  # charged to another group, but part of the replica's memory
        if self._group:
            self._group.join()
            self.set_low_priority(True)

    @property
    def limited_by(self) -> LimitedBy:
        """The current kind of CPU limit."""
        return self._limited_by

    @property
    def period_ms(self) -> float | None:
        """The period of the CPU quota in milliseconds."""
        return PERIOD_US / 1000 if self._limited_by == "cgroup" else None

    def set_cpu(self, cores: float | None, first_core: int = 0) -> None:
        """Limit the replica to `cores`; None lifts the limit, so that loading is not throttled.

        Without a control group the limit is whole cores, counted from the host's `first_core`.
        """
        if self._group:
            self._group.set_cpu(cores)
            self.set_low_priority(cores is None)
            self._limited_by = "none" if cores is None else "cgroup"
        elif hasattr(os, "sched_setaffinity"):
            self._limited_by = pin_process(os.getpid(), cores, first_core)

    def set_low_priority(self, low: bool) -> None:
        """Let other processes go first, for a replica that loads."""
        if self._group:
            self._group.set_weight(DEFAULT_WEIGHT // 64 if low else DEFAULT_WEIGHT)

    def set_memory(self, limit_bytes: int | None) -> None:
        """Limit the replica's memory; 0 or None lifts the limit. Without a control group there is no limit.

        Raise ReplicaDiedError if the replica already uses more.
        """
        if not self._group:
            return None
        if not limit_bytes:
            return self._group.set_memory(None)
        release_freed_memory()
        try:
            if limit_bytes <= self._initial_bytes:
                raise LimitError("less than an idle process uses")
            self._group.set_memory(limit_bytes - self._initial_bytes)
        except LimitError:
            used = format_bytes(_status_bytes("VmRSS"))
            message = f"A replica was given {format_bytes(limit_bytes)}, but uses {used} before it trains."
            raise ReplicaDiedError(message, "Raise its memory.", oom=True) from None

    def reset_peaks(self) -> None:
        """Reset the memory peak to the current usage."""
        release_freed_memory()
        if self._group:
            self._group.reset_memory_peak()
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return

    def usage(self) -> ReplicaUsage:
        """Return the usage so far; the memory peak is the maximum of the group's and the process's."""
        cpu_s = self._group.cpu_used_s() if self._group else time.process_time()
        throttled_s = self._group.throttled_s() if self._group else 0.0
        charged = self._group.memory_peak_bytes() if self._group else 0
        waited_s = runqueue_s(os.getpid())
        return ReplicaUsage(time.monotonic(), cpu_s, throttled_s, waited_s, max(charged, _status_bytes("VmHWM")))


def pin_process(pid: int, cores: float | None, first: int) -> LimitedBy:
    """Limit a process to whole cores by affinity, thread by thread, since each thread has its own mask."""
    host = sorted(os.sched_getaffinity(os.getppid()) | os.sched_getaffinity(0))
    count = len(host) if cores is None else min(math.ceil(cores), len(host))
    mask = {host[(first + i) % len(host)] for i in range(count)}
    for thread in os.listdir(f"/proc/{pid}/task"):  # including threads of libraries, which Python does not list
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), mask)
    return "none" if count == len(host) else "affinity"


def _status_bytes(name: str) -> int:
    """Return a size from this process's status in bytes; 0 if the host does not report it."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
