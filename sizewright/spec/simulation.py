"""What policies lead to when a trace is replayed under them."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from sizewright.spec._base import Record
from sizewright.spec.recommendation import Estimate


class SimulatedDecision(Record):
    """One decision of a run."""

    now_s: float
    jobs: int = Field(description="that were there")
    moved: int = Field(description="that got something else")
    seconds: float = Field(description="that it took")
    gap: float | None = Field(default=None, description="share by which a better one could exceed its value at most")


class SimulatedRun(Record):
    """A trace under one policy, at one load, with one seed."""

    policy: str
    load: float = Field(description="share of the capacity that jobs would use with what their users asked for")
    seed: int
    capacity: dict[str, float] = Field(description="of the cluster's own servers, by resource")
    figures: dict[str, float] = Field(description="times in seconds; shares of 1")
    completion_s: tuple[float, ...] = Field(default=(), description="percentiles 0 to 100 of the completion times")
    decisions: tuple[SimulatedDecision, ...] = Field(default=(), description="where they were asked for")


class SimulationRow(Record):
    """A policy at a load, over all seeds."""

    policy: str
    load: float
    seeds: int
    figures: dict[str, Estimate] = Field(description="means, with 95 % intervals where there are several seeds")


class Simulation(Record):
    """All policies at all loads."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/simulation/v1"] = Field(default="sizewright/simulation/v1", alias="schema")
    trace: str
    jobs: int
    rows: tuple[SimulationRow, ...]
    runs: tuple[SimulatedRun, ...]
    assumptions: tuple[str, ...] = Field(default=(), description="what the trace does not tell, and was taken to be")
    notes: tuple[str, ...] = ()
