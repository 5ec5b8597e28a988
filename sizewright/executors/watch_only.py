"""The base of executors that see a job which they did not launch."""

from __future__ import annotations

from sizewright.executors.change_costs import LIVE_PRIOR, NO_CHANGE
from sizewright.executors.refuses import Refuses
from sizewright.spec import Capabilities, ChangeCost, Plan


class WatchOnly(Refuses):
    """A loop says what it would do, so it may think of every kind of change; each costs `change`."""

    capabilities = Capabilities(observe=True, migrate=True, rebalance=True)
    change: ChangeCost = LIVE_PRIOR

    def change_cost(self, plan: Plan) -> ChangeCost:
        """What any change is taken to cost."""
        return NO_CHANGE if plan.changes_nothing else self.change
