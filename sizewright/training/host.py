"""What this process may use of its host: inside a container that is less than the host has."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_ROOT = Path("/sys/fs/cgroup")


def host_cores(root: Path = _ROOT) -> float:
    """Cores: the least of the host's, this process's affinity, and its container's quota."""
    cores = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    quota, period = _numbers(root / "cpu.max", 2) or (
        *(_numbers(root / "cpu" / "cpu.cfs_quota_us", 1) or (-1.0,)),
        *(_numbers(root / "cpu" / "cpu.cfs_period_us", 1) or (1.0,)),
    )
    return min(cores, quota / period) if quota > 0 else cores


def available_memory_bytes(root: Path = _ROOT) -> int:
    """Bytes that can still be used: the less of what the host and what the container has left."""
    left = float(psutil.virtual_memory().available)
    for limit, used in (
        (root / "memory.max", root / "memory.current"),
        (root / "memory" / "memory.limit_in_bytes", root / "memory" / "memory.usage_in_bytes"),
    ):
        greatest, now = _numbers(limit, 1), _numbers(used, 1)
        if greatest and now:
            left = min(left, greatest[0] - now[0])
    return max(0, int(left))


def _numbers(path: Path, count: int) -> tuple[float, ...] | None:
    """The first numbers of a file; None where it is missing or says `max`."""
    try:
        found = tuple(float(word) for word in path.read_text().split()[:count])
    except (OSError, ValueError):
        return None
    return found if len(found) == count else None
