"""Detect replicas that are slower than their peers, with few false alarms over any length of observation.

A worker's own seconds per step (data, compute, packing; without waiting for PS) and a PS's busy seconds per exchange
are compared with the median of the others of its role in the same window, so that what slows all of them, such as a
busy host, cancels out. Each step scores

    score = clip((log(own / others) - d) / d, -1, 1)      d = log(1.35) for a worker, log(1.6) for a PS

and the sum, never below 0, raises an alarm above `_ALARM`: Page's CUSUM test between "as fast as the others" and "more
than 1.8 (2.6) times as slow" (Biometrika, 1954), with bounded scores, so that no single pause raises an alarm. A
healthy PS near its limit takes up to 1.5 times as long as the others for seconds, by the timing of its quota; workers
differ by a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec import Role

_SLOWER: dict[Role, float] = {"worker": math.log(1.35), "ps": math.log(1.6)}
_ALARM = 10.0
_MAX_SCORE_PER_WINDOW = 6.0
"""However many steps a window holds, an alarm takes at least two windows."""
_RATIO_SMOOTHING = 0.7
_MIN_REPLICAS = 2


class Pace(NamedTuple):
    """Seconds per step (worker) or exchange (PS) of one replica in a window, and the median of the others."""

    name: str
    role: Role
    own_s: float
    others_s: float
    repeats: int
    """Number of steps or exchanges."""

    @property
    def ratio(self) -> float:
        """Return own seconds over those of the others."""
        return self.own_s / self.others_s


class Straggler(NamedTuple):
    """A replica that takes `ratio` times as long as its peers, and the number of windows since it began to."""

    name: str
    role: Role
    ratio: float
    windows: int = 1


class _ScoreSum(NamedTuple):
    """The CUSUM statistic, and the number of windows since it was last 0."""

    total: float = 0.0
    windows: int = 0


class StragglerDetector:
    """Run one CUSUM test per replica of a job, window by window."""

    def __init__(self) -> None:
        self._sums: dict[str, _ScoreSum] = {}
        self._ratios: dict[str, float] = {}

    def add(self, window: Window) -> list[Straggler]:
        """Add a window and return the replicas whose test is in alarm."""
        stragglers = []
        for pace in (*paces(window.of("worker")), *paces(window.of("ps"))):
            previous = self._sums.get(pace.name, _ScoreSum())
            total = max(0.0, previous.total + _score(pace))
            windows = previous.windows + 1 if total else 0
            self._sums[pace.name] = _ScoreSum(min(total, 2 * _ALARM), windows)
            smoothed = self._ratios.get(pace.name, pace.ratio)
            self._ratios[pace.name] = smoothed**_RATIO_SMOOTHING * pace.ratio ** (1 - _RATIO_SMOOTHING)
            if total >= _ALARM:
                stragglers.append(Straggler(pace.name, pace.role, self._ratios[pace.name], windows))
        for name in self._sums.keys() - {replica.name for replica in window.replicas}:
            del self._sums[name]
        return stragglers

    def forget(self) -> None:
        """Start all tests again, after a change."""
        self._sums.clear()
        self._ratios.clear()


def paces(replicas: Sequence[ReplicaWindow]) -> list[Pace]:
    """Return the pace of each replica of one role that worked in the window; empty unless two did."""
    active = []
    for replica in replicas:
        seconds, count = _own_seconds(replica)
        if count and seconds > 0:
            active.append((replica, seconds / count, count))
    if len(active) < _MIN_REPLICAS:
        return []
    result = []
    for i, (replica, own_s, count) in enumerate(active):
        others_s = median(seconds for j, (_, seconds, _) in enumerate(active) if j != i)
        result.append(Pace(replica.name, replica.role, own_s, others_s, count))
    return result


def _own_seconds(replica: ReplicaWindow) -> tuple[float, int]:
    """Return the seconds that a replica worked itself, and its steps or exchanges."""
    if replica.role == "ps":
        return replica.busy_s, replica.exchanges
    return replica.data_s + replica.pull_s + replica.compute_s + replica.push_s, replica.steps


def _score(pace: Pace) -> float:
    slower = _SLOWER[pace.role]
    per_step = max(-1.0, min(1.0, (math.log(pace.ratio) - slower) / slower))
    return max(-_MAX_SCORE_PER_WINDOW, min(_MAX_SCORE_PER_WINDOW, pace.repeats * per_step))
