"""What killed runs of this user left on this host: control groups and folders. The next run removes them.

Each is named after the process that made it, so that those of a live run are known.
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

from sizewright.training.cgroups import CgroupTree, own_trees

_GROUP, _FOLDER = "sizewright-", "szw-"
_MADE_BY = re.compile(r"(?:sizewright-.*\.|szw-)(\d+)(?:-.*)?")
_CLOCK_S = 2.0
"""The time at which a process began and that of a file differ by less."""


def group_name(run: str) -> str:
    """The name of a run's control group, which this process makes."""
    return f"{run}.{os.getpid()}"


def make_folder() -> Path:
    """Make a folder for this process that no other user can enter."""
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))


def remove_leftovers() -> None:
    """Remove what processes that are gone have made; what cannot be removed stays."""
    for tree in own_trees():
        for name in {path.name for folder in tree.folders.values() for path in folder.glob(f"{_GROUP}*")}:
            group = tree.below(name)
            if all(_is_left(folder) for folder in group.folders.values()) and not _is_foreign(group):
                group.remove(grace_s=0.0, timeout_s=1.0)
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        if _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_left(path: Path) -> bool:
    """Whether it is a folder of this user, and the process that made it is gone."""
    found = _MADE_BY.fullmatch(path.name)
    try:
        made = path.lstat()
    except FileNotFoundError:  # of one controller, removed already
        return True
    except OSError:
        return False
    if not found or not stat.S_ISDIR(made.st_mode) or made.st_uid != os.getuid():
        return False
    try:
        maker = psutil.Process(int(found[1]))
        return maker.status() == psutil.STATUS_ZOMBIE or maker.create_time() > made.st_mtime + _CLOCK_S
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _is_foreign(group: CgroupTree) -> bool:
    """Whether processes of another namespace run in it: their numbers are 0 here."""
    for folder in set(group.folders.values()):
        for procs in folder.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                if "0" in procs.read_text().split():
                    return True
    return False
