"""Checks that other users cannot replace the folders of this user, and cannot put modules where replicas import."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from sizewright.errors import EngineError

SOLE_USER_VARIABLE = "SIZEWRIGHT_SOLE_USER"
"""Set to 1 where nobody else uses this host, as in a container whose /tmp is a volume that everybody may write to."""
_ALL_IDS = ["0", "0", "4294967295"]
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_parents(folder: Path, variable: str = "TMPDIR") -> None:
    """Raise EngineError if other users can rename what is in this folder, or in a folder above it.

    The error names the environment variable that chooses another folder. With `SIZEWRIGHT_SOLE_USER=1` nothing is
    checked.
    """
    if os.environ.get(SOLE_USER_VARIABLE) == "1":
        return
    trusted = _trusted_owners()
    for each in (folder, *folder.parents):
        info = each.stat()
        writable = info.st_mode & _OTHERS_WRITE and not info.st_mode & stat.S_ISVTX
        if writable or info.st_uid not in trusted:
            raise EngineError(
                f"Other users can replace the folders in {each}, also those that only you can enter.",
                f"Set {variable} to a folder that only you can write to, or set the sticky bit: chmod +t {each} "
                f"(in a container that nobody else uses, set {SOLE_USER_VARIABLE}=1).",
            )


def check_import_folder() -> None:
    """Raise EngineError if other users can write to the folder from which this process imports first."""
    folder = Path(sys.path[0]).resolve()
    info = folder.stat()
    if info.st_mode & _OTHERS_WRITE or info.st_uid not in _trusted_owners():
        raise EngineError(
            f"Other users can write to {folder}, from which replicas load code.",
            "Find out who has changed that folder, then start the job again.",
        )


def _trusted_owners(proc: Path = Path("/proc")) -> set[int]:
    """Return the ids of this user and of root.

    In a user namespace that does not contain the host's root, files of root have the id of unknown users.
    """
    owners = {0, os.getuid()}
    with contextlib.suppress(OSError):
        if (proc / "self" / "uid_map").read_text().split() != _ALL_IDS:
            owners.add(int((proc / "sys" / "kernel" / "overflowuid").read_text()))
    return owners
