"""Programs that tests start: how, and what they may leave."""

from __future__ import annotations

import os
import signal


def as_in_a_terminal() -> None:
    """For `preexec_fn`: a shell may start this suite with signals ignored, which programs inherit."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def groups_of(pid: int) -> list[str]:
    """Control groups that a process of ours made and that are there yet."""
    below = [(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    return [f"{folder}/{name}" for folder, name in below if name.startswith(f"sizewright-{pid}-")]
