"""Turn observations of a running job into windows of work, and skip observations that cannot be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sizewright.spec import Metrics, ReplicaMetrics, Role
from sizewright.spec.reason import Reason

MIN_WINDOW_S = 0.05
_MAX_CLOCK_RATIO, _MAX_CLOCK_OFFSET_S = 2.0, 5.0
"""The loop's clock and the replicas' clocks agree on the seconds of a window within this factor plus this offset."""


class ReplicaWindow(NamedTuple):
    """The work of one replica in a window: seconds, counts and bytes of that time only."""

    name: str
    role: Role
    seconds: float
    cpu_s: float
    throttled_s: float
    steps: int
    samples: int
    data_s: float
    pull_s: float
    compute_s: float
    push_s: float
    wait_s: float
    exchanges: int
    pushes: int
    busy_s: float
    lookups: int
    memory_peak_bytes: int
    """Since the replica started."""
    rows: int
    """Rows that it holds at the end of the window."""


_COUNTERS = tuple(
    name for name in ReplicaWindow._fields if name not in ("name", "role", "seconds", "memory_peak_bytes", "rows")
)
"""The sums that replicas report, and that a window has the gains of."""


class Window(NamedTuple):
    """The time between two observations; `replicas` are those that both observations contain."""

    at_s: float
    """Time of the second observation."""
    seconds: float
    samples: int
    samples_trained: int
    samples_left: int | None
    replicas: tuple[ReplicaWindow, ...]

    @property
    def throughput(self) -> float:
        """Return samples/s of the whole job."""
        return self.samples / self.seconds

    @property
    def expected_left(self) -> int:
        """Return the samples still to be trained; where that is unknown, as many as have been trained."""
        return self.samples_trained if self.samples_left is None else self.samples_left

    def of(self, role: Role) -> list[ReplicaWindow]:
        """Return the replicas of a role."""
        return [replica for replica in self.replicas if replica.role == role]


def merged(windows: Sequence[Window]) -> Window:
    """Merge consecutive windows into one, with the replicas of the last."""
    parts: dict[str, list[ReplicaWindow]] = {}
    for window in windows:
        for replica in window.replicas:
            parts.setdefault(replica.name, []).append(replica)
    last = windows[-1]
    return last._replace(
        seconds=sum(window.seconds for window in windows),
        samples=sum(window.samples for window in windows),
        replicas=tuple(summed(parts[replica.name]) for replica in last.replicas),
    )


def summed(parts: Sequence[ReplicaWindow]) -> ReplicaWindow:
    """Return the sums over windows of one role, with the name of the last."""
    sums = {name: sum(getattr(part, name) for part in parts) for name in ("seconds", *_COUNTERS)}
    return parts[-1]._replace(**sums)


class MetricsWindows:
    """Turn a sequence of observations into windows; what cannot be trusted is skipped, with the reason."""

    def __init__(self) -> None:
        self._last: tuple[float, Metrics] | None = None

    def add(self, at_s: float, metrics: Metrics) -> Window | Reason:
        """Return the window since the last trusted observation, or why there is none.

        `at_s` is the loop's own clock, in seconds. Invalid numbers, counters that fell, and an observation earlier than
        the last one are not trusted. After counters or a clock that went back, the next window begins at this
        observation.
        """
        last = self._last
        if invalid := _invalid(at_s, metrics):
            return invalid
        self._last = (at_s, metrics)
        if last is None:
            return Reason.of("first_observation")
        last_s, last_metrics = last
        if at_s - last_s < MIN_WINDOW_S:
            return Reason.of("clock_stopped" if at_s <= last_s else "observed_too_soon")
        if metrics.samples_trained < last_metrics.samples_trained:
            return Reason.of("samples_decreased")
        known = {replica.name: replica for replica in last_metrics.replicas}
        pairs = [(known[replica.name], replica) for replica in metrics.replicas if replica.name in known]
        for before, after in pairs:
            if _decreased(before, after):
                return Reason.of("counters_decreased", replica=after.name)
        if pairs and (mismatch := _clock_mismatch(at_s - last_s, pairs)):
            return mismatch
        return Window(
            at_s=at_s,
            seconds=at_s - last_s,
            samples=metrics.samples_trained - last_metrics.samples_trained,
            samples_trained=metrics.samples_trained,
            samples_left=metrics.samples_left,
            replicas=tuple(_replica_window(before, after) for before, after in pairs if after.at_s > before.at_s),
        )

    def forget(self) -> None:
        """Begin the next window at the next observation, after a change."""
        self._last = None


def _invalid(at_s: float, metrics: Metrics) -> Reason | None:
    """Return why the numbers of an observation are invalid, or None."""
    if not math.isfinite(at_s):
        return Reason.of("clock_invalid", clock=str(at_s))
    if metrics.samples_left is not None and metrics.samples_left < 0:
        return Reason.of("samples_left_negative", samples_left=metrics.samples_left)
    names = [replica.name for replica in metrics.replicas]
    if len(set(names)) < len(names):
        return Reason.of("replica_twice")
    for replica in metrics.replicas:
        numbers = [getattr(replica, name) for name in (*_COUNTERS, "at_s", "memory_peak_bytes", "rows")]
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            return Reason.of("numbers_invalid", replica=replica.name)
    return None


def _clock_mismatch(seconds: float, pairs: Sequence[tuple[ReplicaMetrics, ReplicaMetrics]]) -> Reason | None:
    """Return why the seconds of a window cannot be right, or None."""
    longest_s = max(after.at_s - before.at_s for before, after in pairs)
    if longest_s == 0:
        return Reason.of("nothing_reported")
    short_s, long_s = sorted((seconds, longest_s))
    if long_s > _MAX_CLOCK_RATIO * short_s + _MAX_CLOCK_OFFSET_S:
        return Reason.of("clock_jumped", loop_s=seconds, job_s=longest_s)
    return None


def _decreased(before: ReplicaMetrics, after: ReplicaMetrics) -> bool:
    return after.at_s < before.at_s or any(getattr(after, name) < getattr(before, name) for name in _COUNTERS)


def _replica_window(before: ReplicaMetrics, after: ReplicaMetrics) -> ReplicaWindow:
    gained = {name: getattr(after, name) - getattr(before, name) for name in _COUNTERS}
    return ReplicaWindow(
        name=after.name,
        role=after.role,
        seconds=after.at_s - before.at_s,
        memory_peak_bytes=after.memory_peak_bytes,
        rows=after.rows,
        **gained,
    )
