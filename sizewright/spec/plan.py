"""A plan: what an executor is to do, and the seam that every executor stands behind."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from pydantic import ConfigDict, Field

from sizewright.spec._base import Record, load_yaml, parse
from sizewright.spec.allocation import Allocation
from sizewright.spec.job import Job


class Plan(Record):
    """`launch` an allocation, `adjust` from one to another, or `keep`."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/plan/v1"] = Field("sizewright/plan/v1", alias="schema")
    id: str = Field(pattern=r"^[a-z0-9][-a-z0-9]*$")
    kind: Literal["launch", "adjust", "keep"]
    job: Job
    target: Allocation
    current: Allocation | None = None
    reason: str
    cooldown_s: float = Field(0.0, ge=0)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan file. Raises JobError with one sentence for every user mistake."""
        return parse(cls, load_yaml(path, "plan"), str(path))


class Executor(Protocol):
    """Carries out plans; here it renders them for others to carry out."""

    name: str

    def render(self, plan: Plan) -> str:
        """The manifest that this executor's platform understands."""
        ...
