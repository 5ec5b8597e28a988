"""The bases of executors that can do some things only."""

from __future__ import annotations

from sizewright.executors.change_costs import LIVE_PRIOR, NO_CHANGE, PODS_PRIORS, ChangeCosts
from sizewright.executors.registry import unsupported
from sizewright.spec import Capabilities, ChangeCost, Handle, Metrics, Outcome, Plan


class UnsupportedExecutor:
    """Refuse every operation that a subclass does not add; each error names the executors that can."""

    name: str
    capabilities: Capabilities

    def launch(self, plan: Plan) -> Handle:
        """Raise UnsupportedError."""
        raise unsupported(self.name, "launch")

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Raise UnsupportedError."""
        raise unsupported(self.name, "adjust")

    def observe(self, handle: Handle) -> Metrics:
        """Raise UnsupportedError."""
        raise unsupported(self.name, "observe")

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Raise UnsupportedError."""
        raise unsupported(self.name, "observe")

    def stop(self, handle: Handle) -> Outcome:
        """Raise UnsupportedError."""
        raise unsupported(self.name, "stop")

    def render(self, plan: Plan) -> str:
        """Raise UnsupportedError."""
        raise unsupported(self.name, "render")


class RenderOnlyExecutor(UnsupportedExecutor):
    """The base of executors that write manifests and leave it to a platform to carry them out.

    A subclass adds `render`, and adds what its platform measured to `change_costs`.
    """

    capabilities = Capabilities(render=True)

    def __init__(self) -> None:
        self.change_costs = ChangeCosts(PODS_PRIORS)

    def remarks(self, plan: Plan) -> list[str]:
        """Return sentences on what a person has to look after in the rendered plan."""
        return []

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return the seconds until the platform's replicas train.

        Until changes are measured this is the prior of queues and pods.
        """
        return self.change_costs.estimate(plan)


class ReadOnlyExecutor(UnsupportedExecutor):
    """The base of executors that see a job which they did not launch.

    The control loop only says what it would do, so every kind of change is allowed; each costs `change`.
    """

    capabilities = Capabilities(observe=True, migrate=True, rebalance=True)
    change: ChangeCost = LIVE_PRIOR

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return what any change is assumed to cost."""
        return NO_CHANGE if plan.changes_nothing else self.change
