"""Detect replicas that are slower than their peers, with few false alarms over any length of observation.

A worker's own seconds per step (data, compute, packing; without waiting for PS) and a PS's busy seconds per exchange
are compared with the median of the others of its role in the same window, so that what slows all of them, such as a
busy host, cancels out. The only replica of a role is compared with the mean of its role's earlier windows, those in
which nothing spoke for a slow replica; a job has these only while it keeps its allocation. Each step scores

    score = clip((log(own / others) - d) / d, -1, 1)      d = log(1.35) for a worker with others, else log(1.6)

and the sum, never below 0, raises an alarm above `_ALARM`: Page's CUSUM test between "as fast as the others" and "more
than 1.8 (2.6) times as slow" (Biometrika, 1954), with bounded scores, so that no single pause raises an alarm. A
healthy PS near its limit takes up to 1.5 times as long as the others for seconds, by the timing of its quota; workers
differ by a tenth.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from sizewright.recommender.control.windows import ReplicaWindow, Window, summed
from sizewright.spec import Role
from sizewright.spec.metrics import PHASES

_COMPARED: tuple[Role, ...] = ("worker", "ps")
_SLOWER: dict[Role, float] = {"worker": math.log(1.35), "ps": math.log(1.6)}
_SLOWER_THAN_BEFORE = math.log(1.6)
_ALARM = 10.0
_MAX_SCORE_PER_WINDOW, _MAX_SCORE_ALONE = 6.0, 4.0
"""However many steps a window holds, an alarm takes at least two windows, and three without peers: hosts vary, too."""
_RATIO_SMOOTHING = 0.7
_MIN_EARLIER_STEPS, _MAX_EARLIER = 50, 100
"""The steps or exchanges, and the windows, that an only replica is compared with: a few would be chance."""


class Pace(NamedTuple):
    """Seconds per step (worker) or exchange (PS) of one replica in a window, and the median of the others."""

    name: str
    role: Role
    own_s: float
    others_s: float
    repeats: int
    """Number of steps or exchanges."""
    earlier: ReplicaWindow | None = None
    """The sum of its role's earlier windows, for the only replica of its role; `others_s` is their mean."""

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
    earlier: ReplicaWindow | None = None
    """The sum of the earlier windows that it is compared with, for the only replica of its role."""


class _ScoreSum(NamedTuple):
    """The CUSUM statistic, and the number of windows since it was last 0."""

    total: float = 0.0
    windows: int = 0


class StragglerDetector:
    """Run one CUSUM test per replica of a job, window by window."""

    def __init__(self) -> None:
        self._sums: dict[str, _ScoreSum] = {}
        self._ratios: dict[str, float] = {}
        self._earlier: dict[Role, deque[ReplicaWindow]] = {role: deque(maxlen=_MAX_EARLIER) for role in _COMPARED}

    def add(self, window: Window) -> list[Straggler]:
        """Add a window and return the replicas whose test is in alarm."""
        stragglers = []
        for pace in self._paces(window):
            previous = self._sums.get(pace.name, _ScoreSum())
            total = max(0.0, previous.total + _score(pace))
            windows = previous.windows + 1 if total else 0
            self._sums[pace.name] = _ScoreSum(min(total, 2 * _ALARM), windows)
            smoothed = self._ratios.get(pace.name, pace.ratio)
            self._ratios[pace.name] = smoothed**_RATIO_SMOOTHING * pace.ratio ** (1 - _RATIO_SMOOTHING)
            if total >= _ALARM:
                stragglers.append(Straggler(pace.name, pace.role, self._ratios[pace.name], windows, pace.earlier))
        for role, only in _only_replicas(window):
            if not self._sums.get(only.name, _ScoreSum()).total:
                self._earlier[role].append(only)
        for name in self._sums.keys() - {replica.name for replica in window.replicas}:
            del self._sums[name]
        return stragglers

    def forget(self, *, earlier: bool = True) -> None:
        """Start all tests again, after a change, and forget earlier windows unless the allocation is the same."""
        self._sums.clear()
        self._ratios.clear()
        if earlier:
            for windows in self._earlier.values():
                windows.clear()

    def accept(self, slow: Straggler) -> None:
        """Take the pace of an only replica as its usual one from now on."""
        del self._sums[slow.name], self._ratios[slow.name]
        self._earlier[slow.role].clear()

    def _paces(self, window: Window) -> Iterator[Pace]:
        for role in _COMPARED:
            yield from paces(window.of(role))
        for role, only in _only_replicas(window):
            if not self._earlier[role]:
                continue
            earlier = summed(self._earlier[role])
            if _count(earlier) >= _MIN_EARLIER_STEPS:
                yield Pace(only.name, role, _seconds_each(only), _seconds_each(earlier), _count(only), earlier)


def paces(replicas: Sequence[ReplicaWindow]) -> list[Pace]:
    """Return the pace of each replica of one role that worked in the window; empty unless two did."""
    active = [replica for replica in replicas if _worked(replica)]
    return [
        Pace(
            replica.name, replica.role, _seconds_each(replica),
            median(_seconds_each(other) for other in active if other is not replica), _count(replica),
        )
        for replica in active
        if len(active) > 1
    ]  # fmt: skip


def own_seconds(replica: ReplicaWindow) -> float:
    """Return the seconds that a replica worked itself."""
    return replica.busy_s if replica.role == "ps" else sum(getattr(replica, name) for name in PHASES)


def _count(replica: ReplicaWindow) -> int:
    """Return the steps of a worker, or the exchanges of a PS."""
    return replica.exchanges if replica.role == "ps" else replica.steps


def _worked(replica: ReplicaWindow) -> bool:
    return _count(replica) > 0 and own_seconds(replica) > 0


def _seconds_each(replica: ReplicaWindow) -> float:
    return own_seconds(replica) / _count(replica)


def _only_replicas(window: Window) -> list[tuple[Role, ReplicaWindow]]:
    """Return the replicas that are the only ones of their role and worked in the window."""
    of_roles = ((role, window.of(role)) for role in _COMPARED)
    return [(role, replicas[0]) for role, replicas in of_roles if len(replicas) == 1 and _worked(replicas[0])]


def _score(pace: Pace) -> float:
    slower, most = _SLOWER[pace.role], _MAX_SCORE_PER_WINDOW
    if pace.earlier:
        slower, most = _SLOWER_THAN_BEFORE, _MAX_SCORE_ALONE
    per_step = max(-1.0, min(1.0, (math.log(pace.ratio) - slower) / slower))
    return max(-most, min(most, pace.repeats * per_step))
