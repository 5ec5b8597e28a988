"""Read the resource usage and the limits of this process's container from its control groups.

The module needs only the standard library. Version 2 of control groups has one tree, version 1 has a tree for each
controller. Inside a container, the container's group is the root of the mounted tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

_N = TypeVar("_N", int, float)
_ROOT, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes a number near 2^63 when there is no limit


class ContainerUsage(NamedTuple):
    """Sums since the container started, and its limits; None where the host does not report a value."""

    cpu_s: float | None = None
    throttled_s: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    cpu_limit: float | None = None
    memory_limit_bytes: int | None = None
    memory_left_bytes: int | None = None
    """Memory that is left until the first limit is reached."""


def container_usage(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> ContainerUsage:
    """Return usage and limits of the groups of this process; a limit is the tightest of a group and its ancestors."""
    groups = _groups(membership)
    if (root / "cgroup.controllers").exists():
        return _version_2(_with_ancestors(root, groups.get("", "/")))
    cpu = root / "cpu,cpuacct" if (root / "cpu,cpuacct").is_dir() else root / "cpu"
    cpuacct = root / "cpuacct" if (root / "cpuacct").is_dir() else cpu
    return _version_1(
        _with_ancestors(cpu, groups.get("cpu", "/")),
        _with_ancestors(cpuacct, groups.get("cpuacct", "/")),
        _with_ancestors(root / "memory", groups.get("memory", "/")),
    )


def _groups(membership: Path) -> dict[str, str]:
    """Return the path of the group by controller, as in `/proc/self/cgroup`; version 2 has an empty controller name."""
    paths: dict[str, str] = {}
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    return paths


def _with_ancestors(root: Path, path: str) -> list[Path]:
    """Return the folder of a group and those of its ancestors.

    Inside a container the path is one of the host, which is not mounted; there the group is the root.
    """
    folder = root / path.lstrip("/")
    if not folder.is_dir() or ".." in Path(path).parts:
        return [root]
    return [folder, *(ancestor for ancestor in folder.parents if ancestor.is_relative_to(root))]


def _version_2(folders: list[Path]) -> ContainerUsage:
    group = folders[0]
    stat = _table(group / "cpu.stat")
    return ContainerUsage(
        cpu_s=_scaled(stat.get("usage_usec"), 1e-6),
        throttled_s=_scaled(stat.get("throttled_usec"), 1e-6),
        memory_bytes=_number(group / "memory.current"),
        memory_peak_bytes=_number(group / "memory.peak"),
        cpu_limit=_tightest(_quota(*_words(folder / "cpu.max")) for folder in folders),
        memory_limit_bytes=_tightest(_number(folder / "memory.max") for folder in folders),
        memory_left_bytes=_remaining(folders, "memory.max", "memory.current"),
    )


def _version_1(cpu: list[Path], cpuacct: list[Path], memory: list[Path]) -> ContainerUsage:
    return ContainerUsage(
        cpu_s=_scaled(_number(cpuacct[0] / "cpuacct.usage"), 1e-9),
        throttled_s=_scaled(_table(cpu[0] / "cpu.stat").get("throttled_time"), 1e-9),
        memory_bytes=_number(memory[0] / "memory.usage_in_bytes"),
        memory_peak_bytes=_number(memory[0] / "memory.max_usage_in_bytes"),
        cpu_limit=_tightest(
            _quota(*_words(folder / "cpu.cfs_quota_us"), *_words(folder / "cpu.cfs_period_us")) for folder in cpu
        ),
        memory_limit_bytes=_tightest(_number(folder / "memory.limit_in_bytes") for folder in memory),
        memory_left_bytes=_remaining(memory, "memory.limit_in_bytes", "memory.usage_in_bytes"),
    )


def _quota(*words: str) -> float | None:
    """Return the limit in cores from the quota and the period; None for `max` or -1, which mean no limit."""
    quota, period = (*words, "", "")[:2]
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _remaining(folders: list[Path], limit_file: str, usage_file: str) -> int | None:
    pairs = ((_number(folder / limit_file), _number(folder / usage_file)) for folder in folders)
    return _tightest(None if limit is None or usage is None else max(0, limit - usage) for limit, usage in pairs)


def _tightest(limits: Iterable[_N | None]) -> _N | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _table(path: Path) -> dict[str, int]:
    rows = [line.split() for line in _text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() and int(text) < _UNLIMITED else None


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
