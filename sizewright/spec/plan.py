"""A plan: what an executor is to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._base import load_yaml, parse
from sizewright.spec._frames import frame, sizes
from sizewright.spec._paths import folder_of
from sizewright.spec._shorthand import PLAN_ID
from sizewright.spec._shown import Result
from sizewright.spec.allocation import Allocation
from sizewright.spec.job import Job
from sizewright.spec.recommendation import Estimate, Recommendation

if TYPE_CHECKING:
    import pandas as pd


class Plan(Result):
    """`launch` an allocation, `adjust` from one to another, or `keep`."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/plan/v1"] = Field(default="sizewright/plan/v1", alias="schema")
    id: Annotated[str, PLAN_ID]
    kind: Literal["launch", "adjust", "keep"]
    job: Job
    target: Allocation
    current: Allocation | None = None
    lower: Allocation | None = Field(
        default=None, description="the least that may do as well; the floor of gangs and groups"
    )
    upper: Allocation | None = Field(default=None, description="the most that may do better")
    reason: str
    asked_by: str = Field(default="", description="who asked for it")
    migrate: tuple[str, ...] = Field(
        default=(), description="replicas, such as ps-1, that new ones of their size replace"
    )
    rebalance: bool = Field(
        default=False, description="whether rows move between the PS until each serves as many look-ups"
    )
    cooldown_s: float = Field(default=0.0, ge=0)
    expected: Estimate | None = Field(default=None, description="samples/s at the target, with the 90 % interval")
    expected_by: str = Field(default="", description="what foretold it")

    def to_frame(self) -> pd.DataFrame:
        """Return a row for the target, and one for each other allocation that it has: current, lower, upper."""
        names = ("target", "current", "lower", "upper")
        return frame({"of": name} | sizes(getattr(self, name)) for name in names if getattr(self, name))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan file; relative paths in it count from its folder. Raises JobError with one sentence for every
        mistake."""
        plan = parse(cls, load_yaml(path, "plan"), str(path))
        return plan.model_copy(update={"job": plan.job.with_absolute_path(folder_of(path))})

    def expecting(self, recommendation: Recommendation) -> Plan:
        """The same plan with what was foretold of its target, so that the run can be held against it."""
        if recommendation.predicted is None:
            return self
        evidence = recommendation.evidence
        by = f"{evidence.model} with {evidence.prior}" if evidence.prior else evidence.model
        told = {"expected": recommendation.predicted.throughput, "expected_by": by}
        return self.model_copy(update=told | {"lower": recommendation.lower, "upper": recommendation.upper})

    @property
    def changes_nothing(self) -> bool:
        """Whether a running job stays as it is: a `keep`, or a target that it has already."""
        same = self.target == self.current and not self.migrate and not self.rebalance
        return self.kind == "keep" or same
