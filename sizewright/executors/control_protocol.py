"""What is said to a running job and what it answers: a JSON object a line, over a socket in a folder of its user."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Literal

from sizewright import errors
from sizewright.errors import EngineError, SizewrightError
from sizewright.recommender.decisions import Decision
from sizewright.spec import Allocation, Capabilities, Handle, Job, Plan
from sizewright.spec._base import Record

MOST_BYTES = 8 << 20
"""Of one line."""


class Request(Record):
    """`attach` makes the loop at the other end the one that changes the job, for as long as it is connected."""

    do: Literal["status", "observe", "change_cost", "adjust", "expect_memory", "attach", "pause", "resume"]
    plan: Plan | None = None
    ps_bytes: int = 0


class Answer(Record):
    """What was asked for, or which error was raised instead."""

    value: Any = None
    error: str = ""
    message: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, error: SizewrightError) -> Answer:
        """It was refused."""
        return cls(error=type(error).__name__, message=error.message, remedy=error.remedy)

    def result(self) -> Any:
        """The value. Raises the error that was raised."""
        if not self.error:
            return self.value
        kind = getattr(errors, self.error, SizewrightError)
        raised = kind.__new__(kind, self.message)
        raised.message, raised.remedy = self.message, self.remedy
        raise raised


class Status(Record):
    """Of a running job."""

    job: Job
    handle: Handle
    allocation: Allocation
    capabilities: Capabilities
    tuned: bool
    """Whether it has a loop of its own."""
    paused: bool
    attached: bool
    """Whether a loop of another process changes it."""
    decision: Decision | None = None


def line_of(record: Record) -> bytes:
    """As it is sent; NaN stays NaN."""
    return json.dumps(record.model_dump(mode="json", exclude_defaults=True)).encode() + b"\n"


def folder() -> Path:
    """Where the sockets of this user are, for nobody else. Raises EngineError where that cannot be."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime) / "sizewright" if runtime else Path(tempfile.gettempdir()) / f"sizewright-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise EngineError(f"No folder for the sockets of running jobs at {path}: {error.strerror}.") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise EngineError(f"{path}, for the sockets of running jobs, is open to others.", "Remove it.")
    return path
