"""Fit the cores and the memory of a running job's replicas to what they use, seen from outside.

Nothing is known of the code that trains: only the cores and the memory of its replicas, and its samples. Numbers of
replicas stay as they are.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import NamedTuple

from sizewright.models.memory._base import rounded_up
from sizewright.models.memory.memory_model import MARGIN
from sizewright.recommender.control.action import Action
from sizewright.spec import Allocation, Group, Job, Metrics, Role
from sizewright.spec._base import Record
from sizewright.spec.bounds import RoleBounds
from sizewright.spec.reason import Reason

_ROLES: tuple[Role, ...] = ("worker", "ps")
_MIN_POINTS, _MAX_POINTS = 3, 200
_NEAR_LIMIT = 0.95
"""Memory above this share of its limit is too much: the kernel ends a container that needs a page more."""
_CORE_STEP = 0.05


class Resizing(Record):
    """When running replicas get other cores or memory."""

    watch_s: float = 60.0
    """Seconds by which the use of cores, and the effect of a change, are judged."""
    horizon_s: float = 1800.0
    """Seconds for which memory is forecast where the end of the job is not known."""
    headroom: float = 0.25
    """Share of the used cores that a replica keeps on top of them."""
    min_saving: float = 0.2
    """Cores are given back if at least this share of them is left."""
    max_slowdown: float = 0.05
    """A job that trains slower by more than this share gets its cores back."""


class _Observed(NamedTuple):
    at_s: float
    metrics: Metrics


class _Reduced(NamedTuple):
    """Cores that were given back: those of before, and the samples/s that the job had with them."""

    allocation: Allocation
    throughput: float


class Resizer:
    """Decides on the sizes of one job's replicas. Only amounts whose bounds the job file states are changed."""

    def __init__(self, job: Job, settings: Resizing = Resizing()) -> None:  # noqa: B008 (a frozen record)
        self._job, self._settings = job, settings
        self._seen: deque[_Observed] = deque(maxlen=_MAX_POINTS)
        self._reduced: _Reduced | None = None
        self._may_reduce = True

    def act(
        self, at_s: float, metrics: Metrics, allocation: Allocation, takes_s: float, *, fits_cores: bool = True
    ) -> Action | None:
        """Return the most urgent change, memory first; None where nothing is to be changed.

        `at_s` is the caller's clock, and `takes_s` the seconds until a change that is decided on next time is done.
        Cores stay as they are unless it `fits_cores`.
        """
        if self._seen and not _continues(self._seen[-1].metrics, metrics):
            self._seen.clear()
        self._seen.append(_Observed(at_s, metrics))
        memory = [action for role in _ROLES if (action := self._enlarge_memory(role, allocation, takes_s))]
        changes = next((action for action in memory if action.changes), None)
        changes = changes or (self._fit_cores(allocation) if fits_cores else None)
        return changes or next(iter(memory), None)

    def changed(self, before: Allocation, target: Allocation) -> None:
        """Note a change that was made: what was seen before says nothing of cores any more."""
        if target.cores() < before.cores():
            self._reduced = _Reduced(before, self._throughput)
        elif self._reduced and target.cores() == self._reduced.allocation.cores():
            self._reduced, self._may_reduce = None, False
        self._seen.clear()

    def _enlarge_memory(self, role: Role, allocation: Allocation, takes_s: float) -> Action | None:
        """Return the change that gives a role memory before its fullest replica exceeds the limit.

        The fullest replica is assumed to grow on as it did over the later half of the observations.
        """
        group, bounds = _only_group(allocation, role), _bounds(self._job, role)
        peaks = [
            (at_s, max((each.memory_peak_bytes for each in metrics.of(role)), default=0))
            for at_s, metrics in self._seen
        ]
        if group is None or not group.memory_bytes or "memory_bytes" not in bounds.model_fields_set:
            return None
        if len(peaks) < _MIN_POINTS:
            return None
        (half_s, half), (last_s, last) = peaks[len(peaks) // 2 - 1], peaks[-1]
        growth = max(0.0, (last - half) / (last_s - half_s)) if last_s > half_s else 0.0
        soon = last + growth * takes_s
        if not growth or soon <= _NEAR_LIMIT * group.memory_bytes:
            return None
        needed = rounded_up((last + growth * self._seconds_left) * (1 + MARGIN))
        memory_bytes = min(max(needed, group.memory_bytes), bounds.memory_bytes[1])
        risk = Reason.of(
            "memory_grows", role=role, memory_bytes=last, limit_bytes=group.memory_bytes, growth_bytes=growth * 60
        )
        if memory_bytes <= group.memory_bytes:
            return Action((risk, Reason.of("memory_at_bounds")))
        enough = Reason.of("memory_enlarged", memory_bytes=memory_bytes)
        return Action((risk, enough), target=_with(allocation, role, memory_bytes=memory_bytes))

    def _fit_cores(self, allocation: Allocation) -> Action | None:
        """Return the change that gives cores back, or that takes back one which has slowed the job down."""
        if self._watched_s < self._settings.watch_s:
            return None
        if before := self._reduced:
            if self._throughput < (1 - self._settings.max_slowdown) * before.throughput:
                slower = Reason.of("cores_missed", throughput=self._throughput, throughput_before=before.throughput)
                return Action((slower,), target=_with_cores_of(before.allocation, allocation))
            self._reduced = None
        reduced, reasons = allocation, list[Reason]()
        for role in _ROLES if self._may_reduce and self._trains_on else ():
            group, bounds = _only_group(allocation, role), _bounds(self._job, role)
            used = self._cores_used(role)
            if group is None or not used or "cpu" not in bounds.model_fields_set:
                continue
            steps = math.ceil(round(used * (1 + self._settings.headroom) / _CORE_STEP, 6))
            cpu = max(bounds.cpu[0], round(steps * _CORE_STEP, 6))
            if cpu <= (1 - self._settings.min_saving) * group.cpu:
                reasons.append(Reason.of("cores_idle", role=role, used=used, cpu=group.cpu, cpu_after=cpu))
                reduced = _with(reduced, role, cpu=cpu)
        return Action(tuple(reasons), target=reduced) if reasons else None

    def _cores_used(self, role: Role) -> float:
        """Return the mean cores of the replica that used most over the watched time; 0 where they are not known."""
        first = {each.name: each for each in self._seen[0].metrics.of(role)}
        pairs = [(first[each.name], each) for each in self._seen[-1].metrics.of(role)]
        # A replica that reports by its log tells of its cores when it tells of its steps, and is silent in between.
        spans = [
            (after.last_step_at_s - before.last_step_at_s if before.last_step_at_s else after.at_s - before.at_s)
            for before, after in pairs
        ]
        rates = [(b.cpu_s - a.cpu_s) / span for (a, b), span in zip(pairs, spans, strict=True) if span > 0]
        return max(rates, default=0.0)

    @property
    def _trains_on(self) -> bool:
        """True if the job has trained between all looks, so that its use of cores is that of training."""
        trained = [seen.metrics.samples_trained for seen in self._seen]
        return all(before < after for before, after in itertools.pairwise(trained))

    @property
    def _watched_s(self) -> float:
        return self._seen[-1].at_s - self._seen[0].at_s if self._seen else 0.0

    @property
    def _throughput(self) -> float:
        """Samples/s over the watched time."""
        if not self._watched_s:
            return 0.0
        samples = self._seen[-1].metrics.samples_trained - self._seen[0].metrics.samples_trained
        return samples / self._watched_s

    @property
    def _seconds_left(self) -> float:
        """Seconds until the job ends, or until its memory is forecast."""
        left = self._seen[-1].metrics.samples_left
        if left is None or not self._throughput:
            return self._settings.horizon_s
        return left / self._throughput


def _continues(before: Metrics, after: Metrics) -> bool:
    """Return whether the same replicas run on."""
    known = {each.name: each for each in before.replicas}
    return known.keys() == {each.name for each in after.replicas} and all(
        each.cpu_s >= known[each.name].cpu_s and each.at_s >= known[each.name].at_s for each in after.replicas
    )


def _bounds(job: Job, role: Role) -> RoleBounds:
    bounds: RoleBounds = getattr(job.bounds, role)
    return bounds


def _only_group(allocation: Allocation, role: Role) -> Group | None:
    """Return a role's group; None where it has none, or several sizes."""
    groups: tuple[Group, ...] = getattr(allocation, role)
    return groups[0] if len(groups) == 1 else None


def _with_cores_of(before: Allocation, allocation: Allocation) -> Allocation:
    """Return an allocation with the cores that its roles had before."""
    for role in _ROLES:
        if (group := _only_group(before, role)) and _only_group(allocation, role):
            allocation = _with(allocation, role, cpu=group.cpu)
    return allocation


def _with(allocation: Allocation, role: Role, **sizes: float) -> Allocation:
    group = _only_group(allocation, role)
    assert group is not None
    return allocation.model_copy(update={role: (group.model_copy(update=sizes),)})
