"""The diagnosis of a machine: checks, their consequences and remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame

if TYPE_CHECKING:
    import pandas as pd


class Check(Record):
    """The result of one check."""

    name: str
    level: Literal["ok", "lacking", "broken"] = Field(description="lacking: some functions do not work, or work worse")
    found: str
    means: str = Field(default="", description="consequence")
    remedy: str = ""


class Diagnosis(Answer):
    """The results of all checks; the level is `broken` when sizing cannot work on this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/checkup/v1"] = Field(default="sizewright/checkup/v1", alias="schema")
    checks: tuple[Check, ...]

    @property
    def level(self) -> str:
        """The worst level of all checks."""
        levels = {check.level for check in self.checks}
        return next((level for level in ("broken", "lacking") if level in levels), "ok")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per check."""
        return frame(check.model_dump() for check in self.checks)
