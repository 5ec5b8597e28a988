"""What is to be done with a running job."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from sizewright.spec import Allocation
from sizewright.spec._base import Record


class Choice(Record):
    """An allocation that no other beats in throughput and price, as many times those of now."""

    allocation: Allocation
    throughput_times: float = Field(description="its samples/s over those of now")
    price_times: float = Field(description="its price an hour over that of now")


class Action(NamedTuple):
    """What is to be done and why: another allocation, replicas to put elsewhere, look-ups to even out, or none."""

    reason: str
    target: Allocation | None = None
    migrate: tuple[str, ...] = ()
    rebalance: bool = False
    choices: tuple[Choice, ...] = ()
    """What there was to choose from: some of the Pareto set."""

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        return self.target is not None or bool(self.migrate) or self.rebalance
