"""The outcome of a job: samples trained, failures, changes and durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["running", "finished", "stopped", "failed"]


class Failure(Record):
    """The failure of one replica, its cost and the recovery. Times are seconds since the job started."""

    at_s: float
    replica: str = Field(description="its name, such as ps-1")
    cause: str = Field(description="killed, oom, hung, node lost, link cut, or the error that stopped the replica")
    recovered_s: float | None = Field(
        default=None,
        description="seconds from when the failure was noticed until a successor trained; null if none did",
    )
    samples_repeated: int = Field(default=0, ge=0, description="samples that some weights were updated with twice")
    updates_lost: int = Field(default=0, ge=0, description="batches whose updates are lost, once for each PS")
    action: str = Field(default="", description="what was done, in a sentence")


class Change(Record):
    """One change of a running job."""

    at_s: float = Field(description="seconds since the job began")
    kind: str = Field(description="scale, replace, rebalance or another")
    seconds: float = Field(ge=0, description="how long it took")
    description: str = ""


class Outcome(Answer):
    """The outcome of a job, or its state so far (`running`). `samples` counts each sample once, without repeats."""

    status: Status
    message: str = ""
    samples: int = Field(default=0, ge=0, description="samples trained in all")
    samples_resumed: int = Field(default=0, ge=0, description="of these, trained by the run that this one goes on from")
    duration_s: float = Field(default=0.0, ge=0)
    samples_per_s: float | None = Field(
        default=None, description="while it trained at the allocation that it had longest; absent where it is unknown"
    )
    samples_repeated: int = Field(
        default=0, ge=0, description="some weights were updated with them twice, after failures"
    )
    updates_lost: int = Field(default=0, ge=0, description="batches whose updates are lost, once for each PS")
    failures: tuple[Failure, ...] = ()
    changes: tuple[Change, ...] = ()
    snapshots: int = Field(default=0, ge=0, description="written to disk")
    snapshot_faults: int = Field(default=0, ge=0, description="snapshots that could not be taken or written")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per failure and change, in order of time."""
        rows = [{"what": "failure"} | failure.model_dump() for failure in self.failures]
        rows += [{"what": "change"} | change.model_dump() for change in self.changes]
        return frame(sorted(rows, key=lambda row: row["at_s"]), None if rows else ("what", "at_s"))
