"""How one replica is held to its cores and memory: control groups, else whole cores, else not at all."""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sizewright.datasets.allocator import give_back_freed_memory
from sizewright.errors import LimitError, ReplicaDiedError
from sizewright.spec import LimitedBy
from sizewright.spec.units import format_bytes
from sizewright.training.cgroups import PERIOD_US, USUAL_WEIGHT, CgroupTree
from sizewright.training.host import runqueue_s


@dataclass(frozen=True)
class Usage:
    """What a replica has used since it began: CPU seconds, seconds held back or without a core, its peak of memory."""

    at_s: float
    cpu_s: float
    throttled_s: float
    runqueue_s: float
    memory_peak_bytes: int


class ReplicaLimits:
    """Made inside the replica's process, as its first act: memory is charged where it is first used."""

    def __init__(self, tree: CgroupTree | None, name: str) -> None:
        self._group = tree.child(name) if tree else None
        self._limited_by: LimitedBy = "none"
        self._before_bytes = _status_bytes("VmRSS")  # charged elsewhere, yet part of what the replica needs
        if self._group:
            self._group.join()
            self.stand_back(True)

    @property
    def limited_by(self) -> LimitedBy:
        """What holds the replica to its cores at present."""
        return self._limited_by

    @property
    def period_ms(self) -> float | None:
        """Period of the CPU quota."""
        return PERIOD_US / 1000 if self._limited_by == "cgroup" else None

    def set_cpu(self, cores: float | None, first_core: int = 0) -> None:
        """Hold to `cores`; None while loading, so that starting is not throttled.

        Without a control group these are whole cores, counted from `first_core` of the host's.
        """
        if self._group:
            self._group.set_cpu(cores)
            self.stand_back(cores is None)
            self._limited_by = "none" if cores is None else "cgroup"
        elif hasattr(os, "sched_setaffinity"):
            self._limited_by = pin_process(os.getpid(), cores, first_core)

    def stand_back(self, back: bool) -> None:
        """While it loads, a replica takes only what others leave of the host."""
        if self._group:
            self._group.set_weight(USUAL_WEIGHT // 64 if back else USUAL_WEIGHT)

    def set_memory(self, limit_bytes: int | None) -> None:
        """Hold to `limit_bytes`; 0 or None lifts the limit. Only control groups can.

        Raises ReplicaDiedError when the replica already uses more.
        """
        if not self._group:
            return None
        if not limit_bytes:
            return self._group.set_memory(None)
        give_back_freed_memory()  # what was needed before and is no more
        try:
            if limit_bytes <= self._before_bytes:
                raise LimitError("less than an idle process uses")
            self._group.set_memory(limit_bytes - self._before_bytes)
        except LimitError:
            used = format_bytes(_status_bytes("VmRSS"))
            message = f"A replica was given {format_bytes(limit_bytes)} and uses {used} before it trains."
            raise ReplicaDiedError(message, "Raise its memory.", oom=True) from None

    def reset_peaks(self) -> None:
        """Start the memory peak anew, from what is in use."""
        give_back_freed_memory()
        if self._group:
            self._group.reset_memory_peak()
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return

    def usage(self) -> Usage:
        """What has been used so far; the peak is the greater of the group's and the process's own."""
        cpu_s = self._group.cpu_used_s() if self._group else time.process_time()
        throttled_s = self._group.throttled_s() if self._group else 0.0
        charged = self._group.memory_peak_bytes() if self._group else 0
        waited_s = runqueue_s(os.getpid())
        return Usage(time.monotonic(), cpu_s, throttled_s, waited_s, max(charged, _status_bytes("VmHWM")))


def pin_process(pid: int, cores: float | None, first: int) -> LimitedBy:
    """Hold to whole cores; every thread must be moved, since each has a mask of its own."""
    host = sorted(os.sched_getaffinity(os.getppid()) | os.sched_getaffinity(0))
    count = len(host) if cores is None else min(math.ceil(cores), len(host))
    mask = {host[(first + i) % len(host)] for i in range(count)}
    for thread in os.listdir(f"/proc/{pid}/task"):  # those of libraries too, which Python does not list
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), mask)
    return "none" if count == len(host) else "affinity"


def _status_bytes(name: str) -> int:
    """A size from this process's status; 0 where the host has none."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
