"""The guard that ends a replica whose parent was killed: a shell process that waits for the end of a pipe."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

# Kills a process group, then every process in the control groups until these can be removed, with empty parents.
_SCRIPT = """
read nothing
kill -9 -- "-$1"; shift
for try in 1 2 3 4 5 6 7 8 9 10; do
    left=
    for group in "$@"; do
        while read -r pid; do kill -9 "$pid"; done < "$group/cgroup.procs"
        rmdir "$group" && rmdir "${group%/*}"
        [ -d "$group" ] && left=1
    done
    [ "$left" ] || exit 0
    sleep 0.1
done
"""


class Guard:
    """Guards one process group, and the control groups of its replica."""

    def __init__(self, process_group: int, groups: Iterable[Path]) -> None:
        words = ["/bin/sh", "-c", _SCRIPT, "sizewright-guard", str(process_group), *map(str, groups)]
        self._shell = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the guard, after the parent has ended the replica itself."""
        self._shell.kill()
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()
