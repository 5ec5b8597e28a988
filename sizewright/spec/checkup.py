"""What a machine has, and what each lack means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._base import Record
from sizewright.spec._frames import frame
from sizewright.spec._shown import Result

if TYPE_CHECKING:
    import pandas as pd


class Check(Record):
    """One thing that was looked at."""

    name: str
    level: Literal["ok", "lacking", "broken"] = Field(description="lacking: some things work less well, or not")
    found: str
    means: str = Field(default="", description="what does not work, or less well")
    remedy: str = ""


class Checkup(Result):
    """All of them; `broken` where sizing itself cannot work here."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/checkup/v1"] = Field(default="sizewright/checkup/v1", alias="schema")
    checks: tuple[Check, ...]

    @property
    def level(self) -> str:
        """The worst of them."""
        levels = {check.level for check in self.checks}
        return next((level for level in ("broken", "lacking") if level in levels), "ok")

    def to_frame(self) -> pd.DataFrame:
        """Return the checks, one a row."""
        return frame(check.model_dump() for check in self.checks)
