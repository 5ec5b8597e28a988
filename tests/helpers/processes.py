"""Setup of the programs that tests start, and their control groups."""

from __future__ import annotations

import os
import signal


def as_in_a_terminal() -> None:
    """Restore default signal handlers, as a `preexec_fn`; a shell may start the suite with signals ignored."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def groups_of(pid: int) -> list[str]:
    """Return the existing control groups that a Sizewright process made."""
    below = [(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    return [f"{folder}/{name}" for folder, name in below if name.startswith(f"sizewright-{pid}-")]
