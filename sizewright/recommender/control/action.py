"""The actions of the control loop on a running job."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from sizewright.spec import Allocation
from sizewright.spec._base import Record
from sizewright.spec.reason import Reason
from sizewright.spec.wording import sentences


class Choice(Record):
    """An allocation of the Pareto front, with its throughput and price relative to the current allocation."""

    allocation: Allocation
    throughput_times: float = Field(description="its samples/s divided by the current samples/s")
    price_times: float = Field(description="its price an hour divided by the current price")


class Action(NamedTuple):
    """A change with its reasons: another allocation, replicas to migrate, look-ups to rebalance, or nothing."""

    reasons: tuple[Reason, ...]
    target: Allocation | None = None
    migrate: tuple[str, ...] = ()
    rebalance: bool = False
    choices: tuple[Choice, ...] = ()
    """Some allocations of the Pareto front that the target was chosen from."""

    @property
    def reason(self) -> str:
        """Return the reasons as a text."""
        return sentences(self.reasons)

    @property
    def changes(self) -> bool:
        """Return whether the action changes the job."""
        return self.target is not None or bool(self.migrate) or self.rebalance
