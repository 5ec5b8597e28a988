"""The result of applying a plan on a platform."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sizewright.spec._answer import Answer
from sizewright.spec.executor import Handle


class Application(Answer):
    """The result of applying a plan."""

    plan_id: str
    executor: str
    became: Literal["applied", "unchanged", "declined", "dry run"]
    difference: str = Field(default="", description="diff from the current state to the plan")
    handle: Handle | None = None
    first_step_s: float | None = Field(
        default=None, description="seconds from the plan to the first step after it, if it was waited for"
    )
    message: str = Field(default="", description="why nothing was changed, or why no first step was seen")
