"""What became of a plan that was to be carried out on a platform."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sizewright.spec._shown import Result
from sizewright.spec.executor import Handle


class Application(Result):
    """What became of a plan that was to be applied."""

    plan_id: str
    executor: str
    became: Literal["applied", "unchanged", "declined", "dry run"]
    difference: str = Field(default="", description="lines of a diff from what is there to what is planned")
    handle: Handle | None = None
    first_step_s: float | None = Field(
        default=None, description="seconds from the plan to the first step after it, if it was waited for"
    )
