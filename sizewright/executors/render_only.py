"""The base of executors that write manifests and leave it to a platform to carry them out."""

from __future__ import annotations

from sizewright.errors import InputError
from sizewright.executors.change_costs import NO_CHANGE, PODS_PRIOR, ChangeCosts
from sizewright.executors.registry import unsupported
from sizewright.spec import Capabilities, ChangeCost, Handle, Metrics, Outcome, Plan


class RenderOnly:
    """Refuses all but `render` and `change_cost`; add what your platform measured to `change_costs`."""

    name: str
    capabilities = Capabilities(render=True)

    def __init__(self) -> None:
        self.change_costs = ChangeCosts(PODS_PRIOR)

    def launch(self, plan: Plan) -> Handle:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "launch")

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "adjust")

    def observe(self, handle: Handle) -> Metrics:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "observe")

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "observe")

    def stop(self, handle: Handle) -> Outcome:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "stop")

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Seconds until the platform's pods run: the prior of pods until changes are measured."""
        return NO_CHANGE if plan.changes_nothing else self.change_costs.estimate()


def require_launch(plan: Plan, executor: str) -> None:
    """Raises InputError unless the plan starts a job."""
    if plan.kind != "launch":
        raise InputError(
            f"The {executor} executor renders plans that launch a job; plan {plan.id} is of kind '{plan.kind}'.",
            "Make a launch plan of its target.",
        )
