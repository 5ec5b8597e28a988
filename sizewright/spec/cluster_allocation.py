"""The allocation of a cluster: what each job gets, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame, sizes
from sizewright.spec.allocation import Allocation
from sizewright.spec.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


class Share(Record):
    """The share of one job."""

    job: str
    decision: Literal["launch", "adjust", "keep", "wait", "suspend"]
    allocation: Allocation | None = None
    throughput: float | None = Field(default=None, description="samples/s; none where it is unknown")
    candidates: int = Field(description="number of candidates")
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
        description="value of one more core, GiB or GPU, as a share of the total value, wherever replicas would run",
    )


class ClusterAllocation(Answer):
    """The allocation of one capacity to many jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/division/v1"] = Field(default="sizewright/division/v1", alias="schema")
    policy: str
    valued_by: str = Field(description="unit of the value and the bound")
    value: float = Field(description="total utility of the allocation, in the values of the policy")
    bound: float | None = Field(description="upper bound of the value for these candidates")
    gap: float | None = Field(description="upper bound of the optimality gap, as a share of the value")
    seconds: float = Field(description="that the decision took")
    resources: tuple[ResourceUse, ...]
    shares: tuple[Share, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Plans of all jobs that get resources."""
        return tuple(share.plan for share in self.shares if share.plan)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per job with its share."""
        return frame(
            {"job": share.job, "decision": share.decision}
            | sizes(share.allocation)
            | {"throughput": share.throughput, "candidates": share.candidates, "why": share.why}
            for share in self.shares
        )
