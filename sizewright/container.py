"""What this process's container has used and may use, from its control groups: never the host's.

Needs the standard library alone. Version 2 has one tree of groups, version 1 one for each controller. In a container
its group is the root of what is mounted there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

_N = TypeVar("_N", int, float)
_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes a number near 2^63 for no limit


class Usage(NamedTuple):
    """Sums since the container began, and its limits; None where the host does not tell."""

    cpu_s: float | None = None
    throttled_s: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    cpu_limit: float | None = None
    memory_limit_bytes: int | None = None
    memory_left_bytes: int | None = None
    """Until the first of its limits."""


def own_usage(root: Path = _ROOT, told: Path = _OWN) -> Usage:
    """Of the groups that this process is in; limits are the tightest of theirs and of those around them."""
    groups = _groups(told)
    if (root / "cgroup.controllers").exists():
        return _version_2(_upwards(root, groups.get("", "/")))
    cpu = root / "cpu,cpuacct" if (root / "cpu,cpuacct").is_dir() else root / "cpu"
    cpuacct = root / "cpuacct" if (root / "cpuacct").is_dir() else cpu
    return _version_1(
        _upwards(cpu, groups.get("cpu", "/")),
        _upwards(cpuacct, groups.get("cpuacct", "/")),
        _upwards(root / "memory", groups.get("memory", "/")),
    )


def _groups(told: Path) -> dict[str, str]:
    """Path by controller, as `/proc/self/cgroup` has them; that of version 2 by the empty name."""
    found: dict[str, str] = {}
    for line in _text(told).splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _upwards(root: Path, path: str) -> list[Path]:
    """The group's folder and those around it; within a container the path is one of the host that is not mounted, and
    the group is the root."""
    folder = root / path.lstrip("/")
    if not folder.is_dir() or ".." in Path(path).parts:
        return [root]
    return [folder, *(around for around in folder.parents if around.is_relative_to(root))]


def _version_2(folders: list[Path]) -> Usage:
    own = folders[0]
    stat = _table(own / "cpu.stat")
    return Usage(
        cpu_s=_scaled(stat.get("usage_usec"), 1e-6), throttled_s=_scaled(stat.get("throttled_usec"), 1e-6),
        memory_bytes=_number(own / "memory.current"), memory_peak_bytes=_number(own / "memory.peak"),
        cpu_limit=_least(_quota(*_words(each / "cpu.max")) for each in folders),
        memory_limit_bytes=_least(_number(each / "memory.max") for each in folders),
        memory_left_bytes=_left(folders, "memory.max", "memory.current"),
    )  # fmt: skip


def _version_1(cpu: list[Path], cpuacct: list[Path], memory: list[Path]) -> Usage:
    return Usage(
        cpu_s=_scaled(_number(cpuacct[0] / "cpuacct.usage"), 1e-9),
        throttled_s=_scaled(_table(cpu[0] / "cpu.stat").get("throttled_time"), 1e-9),
        memory_bytes=_number(memory[0] / "memory.usage_in_bytes"),
        memory_peak_bytes=_number(memory[0] / "memory.max_usage_in_bytes"),
        cpu_limit=_least(
            _quota(*_words(each / "cpu.cfs_quota_us"), *_words(each / "cpu.cfs_period_us")) for each in cpu
        ),
        memory_limit_bytes=_least(_number(each / "memory.limit_in_bytes") for each in memory),
        memory_left_bytes=_left(memory, "memory.limit_in_bytes", "memory.usage_in_bytes"),
    )  # fmt: skip


def _quota(*words: str) -> float | None:
    """Cores; `max` or -1 are no limit."""
    quota, period = (*words, "", "")[:2]
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _left(folders: list[Path], limit: str, used: str) -> int | None:
    pairs = ((_number(each / limit), _number(each / used)) for each in folders)
    return _least(None if most is None or now is None else max(0, most - now) for most, now in pairs)


def _least(limits: Iterable[_N | None]) -> _N | None:
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
