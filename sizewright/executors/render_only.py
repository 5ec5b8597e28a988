"""The base of executors that write manifests and leave it to a platform to carry them out."""

from __future__ import annotations

from sizewright.executors.change_costs import PODS_PRIORS, ChangeCosts
from sizewright.executors.refuses import Refuses
from sizewright.spec import Capabilities, ChangeCost, Plan


class RenderOnly(Refuses):
    """Add `render`, and what your platform measured to `change_costs`."""

    capabilities = Capabilities(render=True)

    def __init__(self) -> None:
        self.change_costs = ChangeCosts(PODS_PRIORS)

    def remarks(self, plan: Plan) -> list[str]:
        """Sentences on what a person has to look after in what is rendered of a plan."""
        return []

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Seconds until the platform's replicas train: the prior of queues and pods until changes are measured."""
        return self.change_costs.estimate(plan)
