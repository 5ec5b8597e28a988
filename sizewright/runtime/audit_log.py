"""The audit log: the result of every plan and who requested it, in a file that only grows.

It also holds the seconds that changes took, so that the next process can estimate them.
"""

from __future__ import annotations

import errno
import os
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from sizewright.datasets.files.json_lines import JsonLines
from sizewright.executors.change_costs import ChangeKind
from sizewright.spec import Allocation, Handle, Plan
from sizewright.spec._base import Record
from sizewright.spec.reason import Reason


class Entry(Record):
    """One event of one plan."""

    at: datetime
    plan_id: str
    kind: Literal["launch", "adjust", "keep"]
    job: str
    executor: str
    where: str = Field(default="", description="the cluster, for executors that know several")
    asked_by: str = ""
    target: Allocation
    reason: str = ""
    became: Literal["applied", "refused", "failed", "trains"] = Field(
        description="failed: the platform failed or did not answer, or the change was interrupted; the plan may have "
        "been applied"
    )
    why: str = Field(default="", description="why the plan was refused, or what failed")
    details: tuple[Reason, ...] = Field(default=(), description="violations of the guardrails, with their numbers")
    seconds: float = Field(
        default=0.0,
        ge=0,
        description="seconds until the executor accepted the plan (applied), or until the first step after it (trains)",
    )
    handle: Handle | None = None
    change: ChangeKind | None = Field(default=None, description="kind of the change, of an entry that trains")


class AuditLog(JsonLines[Entry]):
    """The audit log at `path`. Raises StoreError where it cannot be read or written."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, Entry, "the audit log")

    def check_writable(self) -> None:
        """Raise StoreError if the file cannot be written. Unlike `check`, this does not create it."""
        folder = self.path.parent
        if self.path.exists():
            self.check()
        elif not folder.is_dir():
            raise self._store_error("write", "to", FileNotFoundError(errno.ENOENT, f"{folder} is not a folder"))
        elif not os.access(folder, os.W_OK | os.X_OK):
            raise self._store_error("write", "to", PermissionError(errno.EACCES, os.strerror(errno.EACCES)))

    def last_applied(self, plan: Plan, executor: str, where: str = "") -> Entry | None:
        """Return the last entry that says that `executor` applied the plan at `where`, or None."""
        key = (plan.id, plan.job.name, executor, where)
        for entry in reversed(self.read()):
            if (entry.plan_id, entry.job, entry.executor, entry.where) == key and entry.became == "applied":
                return entry
        return None

    def measured(self, executor: str) -> list[tuple[ChangeKind, float]]:
        """Return the kind of each change that `executor` made, and its seconds until the first step after it."""
        return [(entry.change, entry.seconds) for entry in self.read() if entry.executor == executor and entry.change]
