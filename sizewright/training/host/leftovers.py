"""Removal of control groups and folders that killed runs of this user have left on this host.

Their names have the id of the process that created them, so that those of live runs are recognised. A live run also
holds locks on them, because its process may have another id here: containers can share a folder for temporary files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from sizewright.training.host.cgroups import CgroupTree, own_trees
from sizewright.training.host.private_folders import check_parents

_GROUP, _FOLDER = "sizewright-", "szw-"
_CREATOR = re.compile(r"(?:sizewright-.*\.|szw-)(\d+)(?:-.*)?")
_CLOCK_TOLERANCE_S = 2.0
"""The maximum difference between the clocks of process starts and file times."""


def group_name(run: str) -> str:
    """Return the name for a control group of a run in this process."""
    return f"{run}.{os.getpid()}"


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder for this process that no other user can enter, and remove it at the end.

    Raise EngineError if other users could replace it.
    """
    parent = Path(tempfile.gettempdir()).resolve()
    check_parents(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=parent))
    with hold([folder]):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def hold(folders: Iterable[Path]) -> contextlib.ExitStack:
    """Lock folders until the returned context ends, so that no other run takes them for leftovers."""
    try:
        return _lock(folders, fcntl.LOCK_SH)
    except OSError:  # this file system has no locks: other runs cannot lock and remove the folders either
        return contextlib.ExitStack()


def remove_leftovers() -> None:
    """Remove the leftovers of processes that have ended, as far as possible."""
    for tree in own_trees():
        for name in {path.name for folder in tree.folders.values() for path in folder.glob(f"{_GROUP}*")}:
            group = tree.below(name)
            folders = [folder for folder in group.folders.values() if folder.exists()]
            if all(map(_is_orphaned, folders)) and not _is_foreign(group):
                with contextlib.suppress(OSError), _lock(folders, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    group.remove(grace_s=0.0, timeout_s=1.0)
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        if _is_orphaned(folder):
            with contextlib.suppress(OSError), _lock([folder], fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(folder, ignore_errors=True)


def _lock(folders: Iterable[Path], how: int) -> contextlib.ExitStack:
    """Lock folders until the returned context ends. Raise OSError if one cannot be locked."""
    with contextlib.ExitStack() as locks:
        for folder in set(folders):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            locks.callback(os.close, handle)
            fcntl.flock(handle, how)
        return locks.pop_all()


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
