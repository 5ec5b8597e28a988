"""What a running job did between two looks at it, and whether that can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sizewright.spec import Metrics, ReplicaMetrics, Role

LEAST_WINDOW_S = 0.05
_CLOCKS_APART, _CLOCKS_APART_S = 2.0, 5.0
"""The loop's clock and those of the replicas count the same seconds, within this share and so many seconds."""
_SUMS = (
    "cpu_s", "throttled_s", "steps", "samples", "data_s", "pull_s", "compute_s", "push_s", "wait_s",
    "exchanges", "pushes", "busy_s", "lookups",
)  # fmt: skip


class Doing(NamedTuple):
    """What one replica did in a window: seconds, counts and bytes of that time only."""

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
    """Since it began."""
    rows: int
    """That it holds now."""


class Window(NamedTuple):
    """Between two looks: the replicas that were there at both."""

    at_s: float
    """When it ended."""
    seconds: float
    samples: int
    samples_trained: int
    samples_left: int | None
    replicas: tuple[Doing, ...]

    @property
    def throughput(self) -> float:
        """Samples/s of the whole job."""
        return self.samples / self.seconds

    @property
    def expected_left(self) -> int:
        """Samples still to be trained; where that is unknown, as many as have been."""
        return self.samples_trained if self.samples_left is None else self.samples_left

    def of(self, role: Role) -> list[Doing]:
        """What the replicas of a role did."""
        return [replica for replica in self.replicas if replica.role == role]


def merged(windows: Sequence[Window]) -> Window:
    """Windows that follow each other as one, of the replicas that are in the last."""
    last, told = windows[-1], [replica for window in windows for replica in window.replicas]
    return last._replace(
        seconds=sum(window.seconds for window in windows),
        samples=sum(window.samples for window in windows),
        replicas=tuple(_summed([each for each in told if each.name == now.name]) for now in last.replicas),
    )


def _summed(parts: Sequence[Doing]) -> Doing:
    sums = {name: sum(getattr(part, name) for part in parts) for name in ("seconds", *_SUMS)}
    return parts[-1]._replace(**sums)


class Looks:
    """Takes one look after the other; what cannot be trusted is left out, with the reason."""

    def __init__(self) -> None:
        self._last: tuple[float, Metrics] | None = None

    def add(self, at_s: float, metrics: Metrics) -> Window | str:
        """The window since the last look that could be trusted, or why there is none.

        `at_s` are seconds of the loop's own clock. Numbers that are none, and sums that fell, are not trusted, nor is
        a look that comes before the last one; the next is held against this one then.
        """
        last = self._last
        fault = _unsound(at_s, metrics)
        if fault:
            return fault
        self._last = (at_s, metrics)
        if last is None:
            return "this is the first look"
        before_s, before = last
        if at_s - before_s < LEAST_WINDOW_S:
            return "the clock did not go on" if at_s <= before_s else "the last look was just before"
        if metrics.samples_trained < before.samples_trained:
            return "fewer samples are trained than at the last look"
        known = {replica.name: replica for replica in before.replicas}
        both = [(known[now.name], now) for now in metrics.replicas if now.name in known]
        back = next((now.name for then, now in both if _went_back(then, now)), None)
        if back:
            return f"the sums of {back} went back"
        if both and (untimely := _untimely(at_s - before_s, both)):
            return untimely
        return Window(
            at_s=at_s, seconds=at_s - before_s,
            samples=metrics.samples_trained - before.samples_trained,
            samples_trained=metrics.samples_trained, samples_left=metrics.samples_left,
            replicas=tuple(_doing(then, now) for then, now in both if now.at_s > then.at_s),
        )  # fmt: skip

    def forget(self) -> None:
        """After a change, the next look begins anew."""
        self._last = None


def _unsound(at_s: float, metrics: Metrics) -> str:
    if not math.isfinite(at_s):
        return "the clock tells no number"
    if metrics.samples_left is not None and metrics.samples_left < 0:
        return "fewer than no samples are left"
    names = [replica.name for replica in metrics.replicas]
    if len(set(names)) < len(names):
        return "a replica is told twice"
    for replica in metrics.replicas:
        numbers = [getattr(replica, name) for name in (*_SUMS, "at_s", "memory_peak_bytes", "rows")]
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            return f"{replica.name} tells numbers that are none"
    return ""


def _untimely(seconds: float, both: Sequence[tuple[ReplicaMetrics, ReplicaMetrics]]) -> str:
    """Why the seconds of a window cannot be: no replica tells anything new, or all tell of other seconds."""
    longest_s = max(now.at_s - then.at_s for then, now in both)
    if longest_s == 0:
        return "no replica has told anything since the last look"
    short_s, long_s = sorted((seconds, longest_s))
    if long_s > _CLOCKS_APART * short_s + _CLOCKS_APART_S:
        return f"a clock jumped: {seconds:.0f} s passed for the loop, and {longest_s:.0f} s for the job"
    return ""


def _went_back(then: ReplicaMetrics, now: ReplicaMetrics) -> bool:
    return now.at_s < then.at_s or any(getattr(now, name) < getattr(then, name) for name in _SUMS)


def _doing(then: ReplicaMetrics, now: ReplicaMetrics) -> Doing:
    gained = {name: getattr(now, name) - getattr(then, name) for name in _SUMS}
    return Doing(
        name=now.name, role=now.role, seconds=now.at_s - then.at_s, memory_peak_bytes=now.memory_peak_bytes,
        rows=now.rows, **gained,
    )  # fmt: skip
