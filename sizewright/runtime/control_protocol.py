"""Requests to a running job and its answers: one JSON object per line, over a socket in a private folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from sizewright import errors
from sizewright.errors import EngineError, SizewrightError
from sizewright.recommender.control.decisions import Decision
from sizewright.settings import EnvironmentSettings
from sizewright.spec import Allocation, Capabilities, Handle, Job, Plan
from sizewright.spec._base import Record
from sizewright.training.host.private_folders import check_parents

MAX_LINE_BYTES = 8 << 20
UNFINISHED = ".new"
"""The suffix of a socket that its process has not finished opening."""
_OPENING_S = 60.0
"""A socket is a remnant if its process has not finished opening it within this time."""


class ControlRequest(Record):
    """A request; `attach` makes its sender the only one that may change the job, for as long as it is connected."""

    do: Literal["status", "observe", "change_cost", "adjust", "expect_memory", "attach", "pause", "resume"]
    plan: Plan | None = None
    ps_bytes: int = 0


class ControlAnswer(Record):
    """The requested value, or the error that was raised instead."""

    value: Any = None
    error: str = ""
    message: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, error: SizewrightError) -> ControlAnswer:
        """Return the answer that carries an error."""
        return cls(error=type(error).__name__, message=error.message, remedy=error.remedy)

    def result(self) -> Any:
        """Return the value, or raise the error of the other process."""
        if not self.error:
            return self.value
        kind = getattr(errors, self.error, SizewrightError)
        raised = kind.__new__(kind, self.message)
        raised.message, raised.remedy = self.message, self.remedy
        raise raised


class Status(Record):
    """The state of a running job."""

    job: Job
    handle: Handle
    allocation: Allocation
    capabilities: Capabilities
    tuned: bool
    """True if the process that runs the job also runs a control loop for it."""
    paused: bool
    attached: bool
    """True if the control loop of another process is attached."""
    decision: Decision | None = None


def line_of(record: Record) -> bytes:
    """Encode a record for the socket; NaN stays NaN."""
    return json.dumps(record.model_dump(mode="json", exclude_defaults=True)).encode() + b"\n"


def folder() -> Path:
    """Return the private folder of this user's sockets, created if needed.

    Raises EngineError where it cannot be created, is open to other users or could be replaced by them.
    """
    runtime = EnvironmentSettings.from_environment().runtime_dir
    path = Path(runtime) / "sizewright" if runtime else Path(tempfile.gettempdir()) / f"sizewright-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise EngineError(
            f"Cannot create the folder {path} for the sockets of running jobs: {error.strerror}."
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise EngineError(f"Other users can access {path}, the folder for the sockets of running jobs.", "Remove it.")
    check_parents(path.parent.resolve(), "XDG_RUNTIME_DIR")
    return path


def is_listening(path: Path) -> bool:
    """Return whether a process listens on a socket; True also if this cannot be determined."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) not in (errno.ECONNREFUSED, errno.ENOENT)


def remove_dead_sockets(path: Path) -> None:
    """Remove the sockets in a folder that killed processes have left there."""
    for each in path.iterdir():
        with contextlib.suppress(OSError):  # another process may remove it at the same time
            is_opening = each.suffix == UNFINISHED and time.time() - each.lstat().st_mtime < _OPENING_S
            if each.is_socket() and not is_opening and not is_listening(each):
                each.unlink()
