"""Replicas that were asked for and are not there: waited for as long as they usually take, then done without."""

from __future__ import annotations

from collections.abc import Mapping

from sizewright.recommender.action import Action
from sizewright.spec import Allocation, ChangeCost, Group, Job, Role
from sizewright.spec.units import format_count

_AWAITED: tuple[Role, ...] = ("worker", "ps")
_LEAST_S = 30.0
"""One that has died is often back by then."""


class Missing:
    """Of one job, look by look."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waited_s = 0.0
        self._there: Mapping[Role, int] = {}

    def look(self, seconds: float, allocation: Allocation, there: Mapping[Role, int]) -> str:
        """How what ran in so many seconds more differs from what was asked for; empty where it does not."""
        self._there = there
        for role in _AWAITED:
            if there[role] != allocation.replicas(role):
                self._waited_s += seconds
                return f"{there[role]} of {format_count(allocation.replicas(role), 'replica')} of the {role} are there"
        self._waited_s = 0.0
        return ""

    def forget(self) -> None:
        """After a change others are waited for."""
        self._waited_s = 0.0

    def act(self, allocation: Allocation, cost: ChangeCost) -> Action | None:
        """Go on with fewer workers, where the others have not come. Rows of a PS that is not there are to be had by
        nobody: for it the executor is waited."""
        if not self._waited_s or self._there["ps"] != allocation.replicas("ps"):
            return None
        enough_s = max(cost.upper, _LEAST_S)
        there, wanted = self._there["worker"], allocation.replicas("worker")
        if self._waited_s < enough_s or not self._job.bounds.worker.replicas[0] <= there < wanted:
            return None
        waited = f"after {self._waited_s:.0f} s, where {enough_s:.0f} were to be enough"
        why = f"{there} of {format_count(wanted, 'worker')} are there {waited}"
        fewer = allocation.model_copy(update={"worker": _first(allocation.worker, there)})
        return Action(f"{why}: it goes on with these.", target=fewer)


def _first(groups: tuple[Group, ...], count: int) -> tuple[Group, ...]:
    """As many of them."""
    kept: list[Group] = []
    for group in groups:
        replicas = min(group.replicas, count - sum(each.replicas for each in kept))
        if replicas:
            kept.append(group.model_copy(update={"replicas": replicas}))
    return tuple(kept)
