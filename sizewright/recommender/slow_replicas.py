"""Which replicas are slower than those beside them, with few false alarms however long one watches.

A worker's own seconds a step (data, compute, packing; not what it waits for PS), a PS's busy seconds an exchange, are
compared with the median of the others of its role in the same window, so that what slows all of them, a busy host say,
cancels out. Each step counts for or against by

    score = clip((log(own / others) - d) / d, -1, 1)      d = log(1.35) of a worker, log(1.6) of a PS

and the sum, never below 0, raises a finding above `_ALARM`: Page's CUSUM test between "as fast as the others" and "more
than 1.8 (2.6) times as slow" (Biometrika, 1954), with scores that no single pause can carry far. A healthy PS near its
limit takes up to 1.5 times as long as the others for seconds, by the luck of its quota; workers differ by a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from sizewright.recommender.windows import Doing, Window
from sizewright.spec import Role

_SLOWER: dict[Role, float] = {"worker": math.log(1.35), "ps": math.log(1.6)}
_ALARM = 10.0
_MOST_OF_A_WINDOW = 6.0
"""However many steps a window holds: what raises an alarm lasted at least two."""
_KEPT = 0.7
_LEAST_PEERS = 1


class Pace(NamedTuple):
    """A replica's seconds a step or exchange in a window, and those of the median of the others."""

    name: str
    role: Role
    own_s: float
    others_s: float
    times: int

    @property
    def ratio(self) -> float:
        """How many times as long as the others it takes."""
        return self.own_s / self.others_s


class Slow(NamedTuple):
    """A replica that is slower than those beside it, by how many times, and in how many windows that has shown."""

    name: str
    role: Role
    ratio: float
    windows: int = 1


class _Sum(NamedTuple):
    """Of scores, and in how many windows since it was last 0."""

    total: float = 0.0
    windows: int = 0


class SlowReplicas:
    """Watches all replicas of a job, window by window."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sum] = {}
        self._ratios: dict[str, float] = {}

    def add(self, window: Window) -> list[Slow]:
        """Those that are slow by now."""
        found = []
        for pace in (*paces(window.of("worker")), *paces(window.of("ps"))):
            before = self._sums.get(pace.name, _Sum())
            total = max(0.0, before.total + _score(pace))
            windows = before.windows + 1 if total else 0
            self._sums[pace.name] = _Sum(min(total, 2 * _ALARM), windows)
            smoothed = self._ratios.get(pace.name, pace.ratio)
            self._ratios[pace.name] = smoothed**_KEPT * pace.ratio ** (1 - _KEPT)
            if total >= _ALARM:
                found.append(Slow(pace.name, pace.role, self._ratios[pace.name], windows))
        gone = self._sums.keys() - {replica.name for replica in window.replicas}
        for name in gone:
            del self._sums[name]
        return found

    def forget(self) -> None:
        """After a change nothing of before counts."""
        self._sums.clear()
        self._ratios.clear()


def paces(replicas: Sequence[Doing]) -> list[Pace]:
    """Of those of one role that did anything in the window, against the others; none of a replica alone."""
    seconds = [(replica, _own_seconds(replica)) for replica in replicas]
    told = [(replica, own, count) for replica, (own, count) in seconds if count and own > 0]
    if len(told) <= _LEAST_PEERS:
        return []
    each = [own / count for _, own, count in told]
    found = []
    for i, (replica, own, count) in enumerate(told):
        others = median([*each[:i], *each[i + 1 :]])
        found.append(Pace(replica.name, replica.role, own / count, others, count))
    return found


def _own_seconds(replica: Doing) -> tuple[float, int]:
    if replica.role == "ps":
        return replica.busy_s, replica.exchanges
    return replica.data_s + replica.pull_s + replica.compute_s + replica.push_s, replica.steps


def _score(pace: Pace) -> float:
    slower = _SLOWER[pace.role]
    each = max(-1.0, min(1.0, (math.log(pace.ratio) - slower) / slower))
    return max(-_MOST_OF_A_WINDOW, min(_MOST_OF_A_WINDOW, pace.times * each))
