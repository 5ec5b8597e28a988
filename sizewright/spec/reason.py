"""A reason of a decision: a kind and its numbers, for programs. `wording.py` turns it into a sentence for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field
from typing_extensions import Self

from sizewright.spec._base import Record

Value = bool | int | float | str


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

    def adding_each(self, name: str, records: Sequence[Mapping[str, Value | None]]) -> Self:
        """Return the reason with the values of several records, such as `job_1_name`, `job_1_weight`, `job_2_name`."""
        values: dict[str, Value] = {}
        for number, record in enumerate(records, 1):
            values |= {f"{name}_{number}_{key}": value for key, value in record.items() if value is not None}
        return self.adding(**values)


def numbered(values: Mapping[str, Value], name: str) -> Iterator[dict[str, Value]]:
    """Yield the records that `adding_each` added under a name."""
    number = 1
    while any(key.startswith(prefix := f"{name}_{number}_") for key in values):
        yield {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        number += 1
