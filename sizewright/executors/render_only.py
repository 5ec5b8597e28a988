"""The base of executors that write manifests and leave it to a platform to carry them out."""

from __future__ import annotations

from sizewright.errors import InputError
from sizewright.executors.change_costs import NO_CHANGE, PODS_PRIOR, ChangeCosts
from sizewright.executors.refuses import Refuses
from sizewright.spec import Capabilities, ChangeCost, Plan


class RenderOnly(Refuses):
    """Add `render`, and what your platform measured to `change_costs`."""

    capabilities = Capabilities(render=True)

    def __init__(self) -> None:
        self.change_costs = ChangeCosts(PODS_PRIOR)

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
