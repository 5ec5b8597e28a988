"""The base of executors that see a job which they did not launch."""

from __future__ import annotations

from sizewright.executors.change_costs import LIVE_PRIOR, NO_CHANGE
from sizewright.executors.registry import unsupported
from sizewright.spec import Capabilities, ChangeCost, Handle, Outcome, Plan


class WatchOnly:
    """Refuses all but what is added to it. A loop says what it would do, so it may think of every kind of change."""

    name: str
    capabilities = Capabilities(observe=True, migrate=True, rebalance=True)
    change: ChangeCost = LIVE_PRIOR

    def launch(self, plan: Plan) -> Handle:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "launch")

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "adjust")

    def stop(self, handle: Handle) -> Outcome:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "stop")

    def render(self, plan: Plan) -> str:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "render")

    def change_cost(self, plan: Plan) -> ChangeCost:
        """What any change is taken to cost."""
        return NO_CHANGE if plan.changes_nothing else self.change
