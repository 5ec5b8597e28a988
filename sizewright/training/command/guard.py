"""What ends a replica whose starter has died without a word (SIGKILL): a shell that waits for the end of a pipe."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

# A process group, then every process in the control groups until these can be removed, and those above if empty.
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
    """Over one process group, and the control groups that its replica is in."""

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
        """The starter has ended the replica itself."""
        self._shell.kill()
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()
