"""What a running job tells of the allocations that it has trained at: one trial for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sizewright.datasets.trials import Trial
from sizewright.recommender.windows import Doing, Window
from sizewright.spec import Allocation, Job, Role

LEAST_S = 3.0
"""Less than that of an allocation says nothing of it."""
_LEAST_SE = 0.01
_KEPT_WINDOWS = 60
_ROLES = ("worker", "ps")
_PHASES = ("data_s", "pull_s", "compute_s", "push_s")


class _Tally(NamedTuple):
    """Sums over windows."""

    seconds: float = 0.0
    samples: int = 0
    squares: float = 0.0
    """Of samples/s, by seconds."""
    windows: int = 0


class RunEvidence:
    """Of one job. `series` names the run, whose trials share the mood of its hosts."""

    def __init__(self, job: Job, series: str, allocation: Allocation, started_at: datetime | None = None) -> None:
        self._job, self._series, self._started_at = job, series, started_at
        self._closed: list[Trial] = []
        self._windows: list[Window] = []
        self._allocation, self._tally = allocation, _Tally()

    def changed(self, allocation: Allocation) -> None:
        """From now on it trains at another allocation; one of other memory only goes on as it went."""
        if _speed(allocation) == _speed(self._allocation):
            self._allocation = allocation
            return
        here = self.here()
        self._closed += [here] if here else []
        self._allocation, self._tally, self._windows = allocation, _Tally(), []

    def know(self, trials: Sequence[Trial]) -> None:
        """What an earlier part of the run told."""
        self._closed += trials

    def add(self, window: Window) -> None:
        """A window of undisturbed training at the present allocation."""
        rate, t = window.throughput, self._tally
        self._tally = _Tally(
            t.seconds + window.seconds, t.samples + window.samples, t.squares + window.seconds * rate**2, t.windows + 1
        )
        self._windows = [*self._windows[-_KEPT_WINDOWS + 1 :], window]

    @property
    def workers(self) -> int:
        """Of the present allocation."""
        return self._allocation.replicas("worker")

    @property
    def rate(self) -> tuple[float, float]:
        """Samples/s at the present allocation, and its relative standard error; of nothing yet (0, infinity)."""
        t = self._tally
        if not t.samples:
            return 0.0, math.inf
        mean = t.samples / t.seconds
        if t.windows < 2:
            return mean, 1.0
        variance = max(t.squares / t.seconds - mean**2, 0.0) / (t.windows - 1)
        return mean, max(math.sqrt(variance) / mean, _LEAST_SE)

    def here(self) -> Trial | None:
        """A trial of the present allocation; None while it is too short."""
        rate, error = self.rate
        if self._tally.seconds < LEAST_S or not rate:
            return None
        a = self._allocation
        workers, servers = self._of("worker"), self._of("ps")
        steps, exchanges = _sum(workers, "steps"), _sum(servers, "exchanges")
        phases = {f"phase_{name}": _sum(workers, name) / steps for name in _PHASES} if steps else {}
        if exchanges:
            phases["ps_busy_s"] = _sum(servers, "busy_s") / exchanges
        return Trial.model_validate(
            {
                "workers": a.replicas("worker"), "ps": a.replicas("ps"), "throughput": rate,
                "throughput_se": rate * min(error, 1.0), "job": self._job.name, "job_hash": self._job.hash,
                "series": self._series, "worker_cpu": a.cores("worker") / a.replicas("worker"),
                "ps_cpu": a.cores("ps") / a.replicas("ps") if a.replicas("ps") else None,
                "batch_size": a.batch_size, "sync": self._job.training.sync, "duration_s": self._tally.seconds,
                "worker_cpu_used": _cores(workers), "ps_cpu_used": _cores(servers), "started_at": self._started_at,
                "worker_memory_bytes": _peak(workers),  # that of PS grows as their tables do: `memory_watch.py`
            } | phases
        )  # fmt: skip

    def trials(self) -> list[Trial]:
        """One for each allocation that it has trained at for long enough, the present last."""
        here = self.here()
        return [*self._closed, *([here] if here else [])]

    def _of(self, role: Role) -> list[Doing]:
        return [replica for window in self._windows for replica in window.of(role)]


def _speed(allocation: Allocation) -> Allocation:
    """What its speed comes from: all but memory."""
    sides = {
        role: tuple(g.model_copy(update={"memory_bytes": 0}) for g in getattr(allocation, role)) for role in _ROLES
    }
    return allocation.model_copy(update=sides)


def _sum(replicas: Sequence[Doing], name: str) -> float:
    return float(sum(getattr(replica, name) for replica in replicas))


def _cores(replicas: Sequence[Doing]) -> float | None:
    seconds = _sum(replicas, "seconds")
    return _sum(replicas, "cpu_s") / seconds if seconds else None


def _peak(replicas: Sequence[Doing]) -> int | None:
    return max((replica.memory_peak_bytes for replica in replicas), default=0) or None
