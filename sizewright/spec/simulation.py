"""The results of simulations, in which a trace is replayed under policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame
from sizewright.spec.recommendation import Estimate

if TYPE_CHECKING:
    import pandas as pd


class SimulatedDecision(Record):
    """One decision of a simulated run."""

    now_s: float
    jobs: int = Field(description="that were there")
    moved: int = Field(description="that got something else")
    seconds: float = Field(description="that it took")
    gap: float | None = Field(default=None, description="upper bound of the optimality gap, as a share of the value")


class JobOutcome(Record):
    """What became of one job in a simulated run."""

    job: str
    arrived_s: float
    started_s: float | None = Field(default=None, description="its first start; absent if it never ran")
    finished_s: float | None = Field(default=None, description="absent if it did not end")
    waited_s: float = Field(description="without an allocation, in all")
    ran_s: float = Field(description="with one, in all; pauses at starts and changes included")
    preemptions: int = Field(description="how often it was stopped for other jobs")
    changes: int = Field(description="how often its size changed while it ran")
    failures: int = Field(description="how often it failed and began again from its last save")
    attained: dict[str, float] = Field(description="units × seconds that it had, by resource")


class SimulatedRun(Record):
    """The run of a trace under one policy, at one load, with one seed."""

    policy: str
    load: float = Field(description="share of the capacity that jobs would use with the requests of their users")
    seed: int
    capacity: dict[str, float] = Field(description="of the cluster's own servers, by resource")
    figures: dict[str, float] = Field(description="times in seconds; shares of 1")
    completion_s: tuple[float, ...] = Field(default=(), description="percentiles 0 to 100 of the completion times")
    decisions: tuple[SimulatedDecision, ...] = Field(default=(), description="where they were asked for")
    outcomes: tuple[JobOutcome, ...] = Field(default=(), description="of each job, where they were asked for")


class SimulationRow(Record):
    """The results of a policy at a load, over all seeds."""

    policy: str
    load: float
    seeds: int
    figures: dict[str, Estimate] = Field(description="means, with 95 % intervals where there are several seeds")


class SimulationAnswer(Answer):
    """The results of all policies at all loads."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/simulation/v1"] = Field(default="sizewright/simulation/v1", alias="schema")
    trace: str
    jobs: int
    rows: tuple[SimulationRow, ...]
    runs: tuple[SimulatedRun, ...]
    assumptions: tuple[str, ...] = Field(
        default=(), description="what the trace does not contain and the simulation assumes"
    )
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return one row per policy and load: means of the figures, with the ends of their intervals."""
        return frame(
            {"policy": row.policy, "load": row.load, "seeds": row.seeds}
            | {name: estimate.value for name, estimate in row.figures.items()}
            | {f"{name}_lower": estimate.lower for name, estimate in row.figures.items()}
            | {f"{name}_upper": estimate.upper for name, estimate in row.figures.items()}
            for row in self.rows
        )

    def outcomes_frame(self) -> pd.DataFrame:
        """Return one row per job of each run, where `outcomes` were asked for; `attained_…` are units × seconds."""
        return frame(
            {"policy": run.policy, "load": run.load, "seed": run.seed}
            | each.model_dump(exclude={"attained"})
            | {f"attained_{resource}": service for resource, service in each.attained.items()}
            for run in self.runs
            for each in run.outcomes
        )
