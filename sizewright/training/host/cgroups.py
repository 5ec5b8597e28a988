"""Control groups, versions 1 and 2: CPU and memory limits of one replica, and its usage."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sizewright.errors import LimitError

PERIOD_US = 20_000  # at 100 ms the same trial ran 31 % faster, in bursts
MIN_QUOTA_US = 2_000
DEFAULT_WEIGHT = 1024
# Version 2 resets a peak for one open file only, so there the process's own peak is used.
_PEAK_FILES = {1: "memory.max_usage_in_bytes"}
_JOIN = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1"; shift; n=$((n - 1)); done; exec "$@"'
_CONTROLLERS_V1 = ("cpu", "cpuacct", "memory")
_CONTROLLERS_V2 = ("cpu", "memory")


@dataclass(frozen=True)
class CgroupTree:
    """A control group, with one folder for each controller (in version 2 the same folder for all)."""

    version: int
    folders: dict[str, Path]

    def child(self, name: str) -> CgroupTree:
        """Create the group `name` below this one, unless it exists, and return it."""
        tree = self.below(name)
        for folder in set(tree.folders.values()):
            folder.mkdir(exist_ok=True)
        if self.version == 2:
            _enable_v2(next(iter(self.folders.values())))
        return tree

    def below(self, name: str) -> CgroupTree:
        """Return the group `name` below this one, which may not exist."""
        return CgroupTree(self.version, {controller: folder / name for controller, folder in self.folders.items()})

    def join(self, pid: int | None = None) -> None:
        """Move a process (this one by default) into the group."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid or os.getpid()))

    def joining(self, words: Sequence[str]) -> list[str]:
        """Return the command that joins the group and then becomes `words`, so that all its usage is charged to it."""
        files = [str(folder / "cgroup.procs") for folder in set(self.folders.values())]
        return ["/bin/sh", "-c", _JOIN, "sizewright", str(len(files)), *files, *words]

    def pids(self) -> set[int]:
        """Return the ids of the group's processes."""
        pids: set[int] = set()
        for folder in set(self.folders.values()):
            with contextlib.suppress(OSError):
                pids |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
        return pids

    def set_cpu(self, cores: float | None) -> None:
        """Limit the group to `cores` (None lifts the limit), and verify the limit by reading it back.

        Raise LimitError if the host refuses or changes the value.
        """
        quota = -1 if cores is None else round(cores * PERIOD_US)
        if 0 <= quota < MIN_QUOTA_US:
            raise LimitError(
                f"A limit of {cores:g} cores is below the minimum of {MIN_QUOTA_US / PERIOD_US:g} that works steadily.",
                "Raise the minimum cpu in the job's bounds.",
            )
        if self.version == 2:
            text = f"max {PERIOD_US}" if quota < 0 else f"{quota} {PERIOD_US}"
            _write(self.folders["cpu"] / "cpu.max", text)
        else:
            _write(self.folders["cpu"] / "cpu.cfs_period_us", str(PERIOD_US))
            _write(self.folders["cpu"] / "cpu.cfs_quota_us", str(quota))

    def set_weight(self, weight: int) -> None:
        """Set the CPU weight on a contended host (the default is 1024); hosts without weights are left unchanged."""
        with contextlib.suppress(OSError):
            if self.version == 2:
                (self.folders["cpu"] / "cpu.weight").write_text(str(max(1, weight * 100 // DEFAULT_WEIGHT)))
            else:
                (self.folders["cpu"] / "cpu.shares").write_text(str(max(2, weight)))

    def set_memory(self, limit_bytes: int | None) -> None:
        """Limit the group's memory (None or 0 lifts the limit); rounded down to whole pages."""
        page = os.sysconf("SC_PAGE_SIZE")
        pages = max(limit_bytes // page, 1) * page if limit_bytes else 0
        if self.version == 2:
            _write(self.folders["memory"] / "memory.max", str(pages) if pages else "max")
        else:
            _write(self.folders["memory"] / "memory.limit_in_bytes", str(pages or -1), check=bool(pages))

    def cpu_used_s(self) -> float:
        """Return the CPU seconds that the group has used."""
        if self.version == 2:
            return _table(self.folders["cpu"] / "cpu.stat").get("usage_usec", 0) / 1e6
        return int((self.folders["cpuacct"] / "cpuacct.usage").read_text()) / 1e9

    def throttled_s(self) -> float:
        """Return the seconds for which the quota throttled the group."""
        stat = _table(self.folders["cpu"] / "cpu.stat")
        return stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9

    def memory_peak_bytes(self) -> int:
        """Return the maximum memory charged to the group since it began or was reset."""
        with contextlib.suppress(OSError, KeyError):
            return int((self.folders["memory"] / _PEAK_FILES[self.version]).read_text())
        return 0

    def unreclaimable_bytes(self) -> int:
        """Return the group's memory without files, which the host cannot reclaim."""
        names = ("anon", "shmem") if self.version == 2 else ("total_rss", "total_shmem")
        with contextlib.suppress(OSError):
            stat = _table(self.folders["memory"] / "memory.stat")
            return sum(stat.get(name, 0) for name in names)
        return 0

    def reset_memory_peak(self) -> None:
        """Reset the memory peak, if the kernel supports it."""
        with contextlib.suppress(OSError, KeyError):
            (self.folders["memory"] / _PEAK_FILES[self.version]).write_text("0")

    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel has killed for memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError):
            return _table(self.folders["memory"] / name).get("oom_kill", 0)
        return 0

    def remove(self, grace_s: float = 3.0, timeout_s: float = 5.0) -> None:
        """Remove this group and the groups below it; processes that still run in them after `grace_s` are killed."""
        start = time.monotonic()
        while (waited := time.monotonic() - start) < grace_s + timeout_s:
            for folder in self._folders_below():
                with contextlib.suppress(OSError):
                    for pid in (folder / "cgroup.procs").read_text().split() if waited > grace_s else ():
                        os.kill(int(pid), signal.SIGKILL)
                    folder.rmdir()
            if not any(folder.exists() for folder in self.folders.values()):
                return
            time.sleep(0.02)

    def _folders_below(self) -> Iterator[Path]:
        for folder in set(self.folders.values()):
            for parent, _, _ in os.walk(folder, topdown=False):
                yield Path(parent)


def find_cgroups(name: str) -> CgroupTree | None:
    """Create a group `name` below this process's own; return None if the host does not allow it."""
    for base in own_trees():
        try:
            tree = base.child(name)
            probe = tree.child("probe")
            probe.set_cpu(1.0)
            probe.remove()
            return tree
        except (OSError, LimitError):
            base.below(name).remove(grace_s=0.0, timeout_s=0.1)
    return None


def own_trees() -> list[CgroupTree]:
    """Return the existing groups below which this process may create groups."""
    return [tree for tree in (_own_v1(), _own_v2()) if tree is not None]


def _own_v1(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> CgroupTree | None:
    folders = {}
    for line in proc.read_text().splitlines() if proc.exists() else []:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            folder = root / controller / path.lstrip("/")
            if controller in _CONTROLLERS_V1 and folder.is_dir():
                folders[controller] = folder
    return CgroupTree(1, folders) if len(folders) == len(_CONTROLLERS_V1) else None


def _own_v2(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> CgroupTree | None:
    """Return the parent of this process's group, since a version 2 group with children cannot hold processes."""
    for line in proc.read_text().splitlines() if proc.exists() else []:
        if line.startswith("0::"):
            group = root / line[3:].strip().lstrip("/")
            folder = group if group == root else group.parent
            if (folder / "cgroup.controllers").is_file():
                controllers = (folder / "cgroup.controllers").read_text().split()
                if set(_CONTROLLERS_V2) <= set(controllers):
                    return CgroupTree(2, dict.fromkeys(_CONTROLLERS_V2, folder))
    return None


def _enable_v2(folder: Path) -> None:
    (folder / "cgroup.subtree_control").write_text("+cpu +memory")


def _write(path: Path, text: str, *, check: bool = True) -> None:
    try:
        path.write_text(text)
        back = path.read_text().split()
    except OSError as error:
        raise LimitError(
            f"The host refused the limit {text!r} in {path.name}: {error.strerror}.",
            "Run as root, or allow this user to write its control group.",
        ) from None
    if check and back != text.split():
        raise LimitError(f"The host changed the limit {text!r} in {path.name} to {' '.join(back)!r}.")


def _table(path: Path) -> dict[str, int]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}
