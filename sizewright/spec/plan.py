"""A plan, which an executor carries out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import load_yaml, parse
from sizewright.spec._frames import frame, sizes
from sizewright.spec._paths import folder_of
from sizewright.spec._shorthand import PLAN_ID
from sizewright.spec.allocation import Allocation
from sizewright.spec.job import Job
from sizewright.spec.recommendation import Estimate, Machines, Recommendation

if TYPE_CHECKING:
    import pandas as pd


class Plan(Answer):
    """A plan to `launch` an allocation, `adjust` a job from one to another, or `keep` it."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/plan/v1"] = Field(default="sizewright/plan/v1", alias="schema")
    id: Annotated[str, PLAN_ID]
    kind: Literal["launch", "adjust", "keep"]
    job: Job
    target: Allocation
    current: Allocation | None = None
    lower: Allocation | None = Field(
        default=None, description="smallest allocation that may be as good; the minimum of gangs and groups"
    )
    upper: Allocation | None = Field(default=None, description="largest allocation that may be better")
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
    expected_by: str = Field(default="", description="model and prior that predicted it")
    machines: Machines | None = Field(
        default=None, description="the hosts that the target was chosen for; null if hosts have no price"
    )

    def to_frame(self) -> pd.DataFrame:
        """Return one row for the target, and one for each other allocation of the plan: current, lower, upper."""
        names = ("target", "current", "lower", "upper")
        return frame({"of": name} | sizes(getattr(self, name)) for name in names if getattr(self, name))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan file; its relative paths count from its folder. Raises JobError for an invalid file."""
        plan = parse(cls, load_yaml(path, "plan"), str(path))
        return plan.model_copy(update={"job": plan.job.with_absolute_path(folder_of(path))})

    def expecting(self, recommendation: Recommendation) -> Plan:
        """Return the plan with the prediction for its target, so that the run can be compared with it."""
        if recommendation.predicted is None:
            return self
        evidence = recommendation.evidence
        return self.model_copy(
            update={
                "expected": recommendation.predicted.throughput,
                "expected_by": f"{evidence.model} with {evidence.prior}" if evidence.prior else evidence.model,
                "lower": recommendation.lower,
                "upper": recommendation.upper,
                "machines": recommendation.chosen_machines,
            }
        )

    @property
    def changes_nothing(self) -> bool:
        """Return whether a running job stays unchanged: a `keep`, or a target that equals the current allocation."""
        same = self.target == self.current and not self.migrate and not self.rebalance
        return self.kind == "keep" or same
