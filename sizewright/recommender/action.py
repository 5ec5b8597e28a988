"""What is to be done with a running job."""

from __future__ import annotations

from typing import NamedTuple

from sizewright.spec import Allocation


class Action(NamedTuple):
    """What is to be done and why: another allocation, replicas to put elsewhere, look-ups to even out, or none."""

    reason: str
    target: Allocation | None = None
    migrate: tuple[str, ...] = ()
    rebalance: bool = False

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        return self.target is not None or bool(self.migrate) or self.rebalance
