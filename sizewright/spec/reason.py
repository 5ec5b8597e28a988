"""A reason of a decision: a kind and its numbers, for programs. `wording.py` turns it into a sentence for people."""

from __future__ import annotations

from pydantic import Field
from typing_extensions import Self

from sizewright.spec._base import Record


class Reason(Record):
    """One reason of a decision, such as `cool_down` with its `remaining_s`."""

    kind: str = Field(description="what holds, such as `quota`")
    values: dict[str, bool | int | float | str] = Field(default_factory=dict, description="its numbers and names")

    @classmethod
    def of(cls, kind: str, /, **values: float | str | None) -> Self:
        """Return a reason with these values; None means that a value does not apply."""
        return cls(kind=kind, values={name: value for name, value in values.items() if value is not None})

    def adding(self, **values: float | str) -> Self:
        """Return the reason with further values."""
        return self.model_copy(update={"values": self.values | values})
