"""Guardrails: the limits of a platform for all plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from sizewright.spec._base import Record, load_yaml, parse
from sizewright.spec._shorthand import ONE_FOR_BOTH
from sizewright.spec.bounds import RoleBounds
from sizewright.spec.cluster import Quota
from sizewright.spec.job import Job, Prices
from sizewright.spec.units import Bytes, Cores, Count, Number


class RoleRails(Record):
    """The limits of one role; an absent one does not apply."""

    replicas: Annotated[tuple[Count, Count], ONE_FOR_BOTH] | None = Field(default=None, description="how many of them")
    cpu: Annotated[tuple[Cores, Cores], ONE_FOR_BOTH] | None = Field(default=None, description="cores of one")
    memory_bytes: Annotated[tuple[Bytes, Bytes], ONE_FOR_BOTH] | None = Field(
        default=None, validation_alias="memory", serialization_alias="memory", description="of one"
    )
    step: Count | None = Field(default=None, ge=1, description="replicas more or fewer in one change")

    model_config = ConfigDict(populate_by_name=True)


class Rails(Record):
    """The limits of all plans."""

    worker: RoleRails = RoleRails()
    ps: RoleRails = RoleRails()
    chief: RoleRails = RoleRails()
    evaluator: RoleRails = RoleRails()
    quota: Quota = Quota()
    budget: Number | None = Field(default=None, ge=0, description="maximum predicted cost of all samples, in currency")
    prices: Prices | None = Field(default=None, description="prices for the budget; absent: those of the job")
    priority_classes: tuple[str, ...] | None = Field(default=None, description="that jobs may name")
    restarts: bool = Field(default=True, description="a plan may restart its job where its platform needs that")
    paused: bool = Field(default=False, description="no plan is carried out")

    @classmethod
    def load(cls, path: str | Path) -> Rails:
        """Read a file of guardrails. Raises JobError for an invalid file."""
        return parse(cls, load_yaml(path, "guardrails"), str(path))

    def narrow(self, job: Job) -> Job:
        """Return the job with its bounds narrowed to these limits, where the two overlap."""
        roles = {role: _narrowed(getattr(job.bounds, role), getattr(self, role)) for role in ("worker", "ps")}
        return job.model_copy(update={"bounds": job.bounds.model_copy(update=roles)})


def _narrowed(bounds: RoleBounds, rails: RoleRails) -> RoleBounds:
    narrowed = {}
    for name in ("replicas", "cpu", "memory_bytes"):
        (low, high), rail = getattr(bounds, name), getattr(rails, name)
        if rail and max(low, rail[0]) <= min(high, rail[1]):
            narrowed[name] = (max(low, rail[0]), min(high, rail[1]))
    return bounds.model_copy(update=narrowed)
