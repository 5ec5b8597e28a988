"""What this process may use of its host: inside a container that is less than the host has."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from sizewright.container import Usage, own_usage


def host_cores(own: Usage | None = None) -> float:
    """Cores: the least of the host's, this process's affinity, and its container's quota."""
    cores = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    return min(cores, (own or own_usage()).cpu_limit or cores)


def available_memory_bytes(own: Usage | None = None) -> int:
    """Bytes that can still be used: the less of what the host and what the container has left."""
    left, own = int(psutil.virtual_memory().available), own or own_usage()
    return left if own.memory_left_bytes is None else min(left, own.memory_left_bytes)


def runqueue_s(pid: int) -> float:
    """Seconds that the threads of a process were ready to run and did not; 0 where the kernel does not count them."""
    waited_ns = 0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns / 1e9
