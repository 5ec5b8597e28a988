"""What each job of a cluster is to get, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._base import Record
from sizewright.spec._frames import frame, sizes
from sizewright.spec._shown import Result
from sizewright.spec.allocation import Allocation
from sizewright.spec.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


class Share(Record):
    """What one job gets."""

    job: str
    decision: Literal["launch", "adjust", "keep", "wait", "suspend"]
    allocation: Allocation | None = None
    throughput: float | None = Field(default=None, description="samples/s; none where nothing tells it")
    candidates: int = Field(description="among which it was chosen")
    why: str
    servers: dict[str, dict[str, int]] = Field(
        default_factory=dict, description="replicas of each role by server, where it could run"
    )
    plan: Plan | None = Field(default=None, description="none for jobs that wait or are suspended")


class LeftOut(Record):
    """A job, or some of its candidates, that could not be considered."""

    job: str
    what: str
    why: str


class ResourceUse(Record):
    """One resource of the cluster, in cores, bytes or GPUs."""

    resource: str
    capacity: float = Field(description="that there is")
    used: float = Field(description="that is given")
    next_unit: float | None = Field(
        default=None,
        description="what another core, GiB or GPU would bring, as a share of the value of this division, wherever "
        "replicas would run",
    )


class Division(Result):
    """One capacity divided over many jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/division/v1"] = Field(default="sizewright/division/v1", alias="schema")
    policy: str
    valued_by: str = Field(description="what its value, its bound and its gap count")
    value: float = Field(description="worth of what is given, as the policy counts it")
    bound: float | None = Field(description="no division of these candidates is worth more")
    gap: float | None = Field(description="share by which a better one could exceed the value at most")
    seconds: float = Field(description="that the decision took")
    resources: tuple[ResourceUse, ...]
    shares: tuple[Share, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Of all jobs that get something."""
        return tuple(share.plan for share in self.shares if share.plan)

    def to_frame(self) -> pd.DataFrame:
        """Return what each job gets, one a row."""
        return frame(
            {"job": share.job, "decision": share.decision}
            | sizes(share.allocation)
            | {"throughput": share.throughput, "candidates": share.candidates, "why": share.why}
            for share in self.shares
        )
