"""Removal of control groups and folders that killed runs of this user have left on this host.

Their names have the id of the process that created them, so that those of live runs are recognised.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

import psutil

from sizewright.training.host.cgroups import CgroupTree, own_trees

_GROUP, _FOLDER = "sizewright-", "szw-"
_CREATOR = re.compile(r"(?:sizewright-.*\.|szw-)(\d+)(?:-.*)?")
_CLOCK_TOLERANCE_S = 2.0
"""The maximum difference between the clocks of process starts and file times."""


def group_name(run: str) -> str:
    """Return the name for a control group of a run in this process."""
    return f"{run}.{os.getpid()}"


def make_folder() -> Path:
    """Create a folder for this process that no other user can enter."""
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))


def remove_leftovers() -> None:
    """Remove the leftovers of processes that have ended, as far as possible."""
    for tree in own_trees():
        for name in {path.name for folder in tree.folders.values() for path in folder.glob(f"{_GROUP}*")}:
            group = tree.below(name)
            if all(_is_orphaned(folder) for folder in group.folders.values()) and not _is_foreign(group):
                group.remove(grace_s=0.0, timeout_s=1.0)
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        if _is_orphaned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_orphaned(path: Path) -> bool:
    """Return whether a path is a folder of this user whose creating process has ended."""
    match = _CREATOR.fullmatch(path.name)
    try:
        info = path.lstat()
    except FileNotFoundError:  # one controller's folder is removed already
        return True
    except OSError:
        return False
    if not match or not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return False
    try:
        creator = psutil.Process(int(match[1]))
        was_reused = creator.create_time() > info.st_mtime + _CLOCK_TOLERANCE_S
        return creator.status() == psutil.STATUS_ZOMBIE or was_reused
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _is_foreign(group: CgroupTree) -> bool:
    """Return whether processes of another namespace run in a group: their ids read 0 here."""
    for folder in set(group.folders.values()):
        for procs in folder.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                if "0" in procs.read_text().split():
                    return True
    return False
