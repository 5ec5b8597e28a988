"""What became of every plan that was to be carried out, and who asked for it: a file that only grows. What changes
took is in it, too, so that the next process knows."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from sizewright.datasets.json_lines import JsonLines
from sizewright.executors.change_costs import ChangeKind
from sizewright.spec import Allocation, Handle, Plan
from sizewright.spec._base import Record


class Entry(Record):
    """One plan, once."""

    at: datetime
    plan_id: str
    kind: Literal["launch", "adjust", "keep"]
    job: str
    executor: str
    where: str = Field(default="", description="the cluster, of executors that tell several apart")
    asked_by: str = ""
    target: Allocation
    reason: str = ""
    became: Literal["applied", "refused", "trains"]
    why: str = Field(default="", description="of one that was refused")
    seconds: float = Field(default=0.0, ge=0, description="until the executor had taken it, or the first step after it")
    handle: Handle | None = None
    change: ChangeKind | None = Field(default=None, description="of one that trains: which changes take as long")


class Ledger(JsonLines[Entry]):
    """At `path`. Raises StoreError where it cannot be read or written."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, Entry, "the ledger of plans")

    def applied(self, plan: Plan, executor: str, where: str = "") -> Entry | None:
        """The entry of a plan that was carried out already, there."""
        same = (plan.id, plan.job.name, executor, where)
        found = [e for e in self.read() if (e.plan_id, e.job, e.executor, e.where) == same and e.became == "applied"]
        return found[-1] if found else None

    def measured(self, executor: str) -> list[tuple[ChangeKind, float]]:
        """Seconds that changes took, to the first step after them."""
        return [(e.change, e.seconds) for e in self.read() if e.executor == executor and e.change]
