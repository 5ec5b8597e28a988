"""The cores and the memory that this process may use, which a container may limit."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from sizewright.container import ContainerUsage, container_usage


def host_cores(container: ContainerUsage | None = None) -> float:
    """Return the usable cores: the minimum of the host's cores, this process's affinity and its container's quota."""
    cores = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    return min(cores, (container or container_usage()).cpu_limit or cores)


def available_memory_bytes(container: ContainerUsage | None = None) -> int:
    """Return the free memory in bytes: the minimum of the host's and the container's."""
    host_bytes = int(psutil.virtual_memory().available)
    container_bytes = (container or container_usage()).memory_left_bytes
    return host_bytes if container_bytes is None else min(host_bytes, container_bytes)


def runqueue_s(pid: int) -> float:
    """Return the seconds that the threads of a process waited for a core; 0 if the kernel does not count them."""
    waited_ns = 0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns / 1e9
