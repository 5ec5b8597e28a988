"""Replicas that were asked for and are not there: waited for as long as they usually take, then done without."""

from __future__ import annotations

from collections.abc import Mapping

from sizewright.recommender.action import Action
from sizewright.spec import Allocation, ChangeCost, Group, Job, Role

_AWAITED: tuple[Role, ...] = ("worker", "ps")
_LEAST_S = 30.0
"""One that has died is often back by then."""


class Missing:
    """Of one job, look by look."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._since_s: float | None = None
        self._there: Mapping[Role, int] = {}

    def look(self, at_s: float, allocation: Allocation, there: Mapping[Role, int]) -> str:
        """How what runs differs from what was asked for; empty where it does not."""
        self._there = there
        for role in _AWAITED:
            if there[role] != allocation.replicas(role):
                self._since_s = at_s if self._since_s is None else min(self._since_s, at_s)
                return f"{there[role]} of {allocation.replicas(role)} replicas of the {role} are there"
        self._since_s = None
        return ""

    def forget(self) -> None:
        """After a change others are waited for."""
        self._since_s = None

    def act(self, at_s: float, allocation: Allocation, cost: ChangeCost) -> Action | None:
        """Go on with fewer workers, where the others have not come. Rows of a PS that is not there are to be had by
        nobody: for it the executor is waited."""
        if self._since_s is None or self._there["ps"] != allocation.replicas("ps"):
            return None
        waited_s, enough_s = at_s - self._since_s, max(cost.upper, _LEAST_S)
        there, wanted = self._there["worker"], allocation.replicas("worker")
        if waited_s < enough_s or not self._job.bounds.worker.replicas[0] <= there < wanted:
            return None
        why = f"{there} of {wanted} workers are there after {waited_s:.0f} s, where {enough_s:.0f} were to be enough"
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
