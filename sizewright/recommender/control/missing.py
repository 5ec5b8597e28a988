"""Handle replicas that were requested but do not run: wait as long as a change usually takes, then do without."""

from __future__ import annotations

from collections.abc import Mapping

from sizewright.recommender.control.action import Action
from sizewright.spec import Allocation, ChangeCost, Group, Job, Role
from sizewright.spec.reason import Reason

_ROLES: tuple[Role, ...] = ("worker", "ps")
_MIN_WAIT_S = 30.0
"""A replica that died has often been restarted by then."""


class MissingReplicas:
    """Compare the running replicas of one job with its allocation, window by window."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waited_s = 0.0
        self._running: Mapping[Role, int] = {}

    def update(self, seconds: float, allocation: Allocation, running: Mapping[Role, int]) -> Reason | None:
        """Take in `seconds` more with these `running` replicas; return what is missing, or None."""
        self._running = running
        for role in _ROLES:
            if running[role] != allocation.replicas(role):
                self._waited_s += seconds
                requested = allocation.replicas(role)
                return Reason.of("replicas_missing", role=role, running=running[role], requested=requested)
        self._waited_s = 0.0
        return None

    def forget(self) -> None:
        """Start waiting again, for the replicas of a new allocation."""
        self._waited_s = 0.0

    def act(self, allocation: Allocation, cost: ChangeCost) -> Action | None:
        """Return the change to fewer workers once the wait is over, else None.

        The rows of a missing PS cannot be had from elsewhere: the loop waits until the executor has restarted it.
        """
        if not self._waited_s or self._running["ps"] != allocation.replicas("ps"):
            return None
        expected_s = max(cost.upper, _MIN_WAIT_S)
        running, requested = self._running["worker"], allocation.replicas("worker")
        if self._waited_s < expected_s or not self._job.bounds.worker.replicas[0] <= running < requested:
            return None
        reason = Reason.of(
            "workers_missing", running=running, requested=requested, waited_s=self._waited_s, expected_s=expected_s
        )
        count = running
        while not self._job.splits_batch(count):
            count -= 1
        target = allocation.model_copy(update={"worker": _first(allocation.worker, count)})
        return Action((reason,), target=self._job.with_shared_batch(target))


def _first(groups: tuple[Group, ...], count: int) -> tuple[Group, ...]:
    """Return the groups of the first `count` replicas."""
    kept: list[Group] = []
    for group in groups:
        replicas = min(group.replicas, count - sum(each.replicas for each in kept))
        if replicas:
            kept.append(group.model_copy(update={"replicas": replicas}))
    return tuple(kept)
