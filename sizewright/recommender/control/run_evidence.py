"""Trials that a running job yields: one for each allocation at which it has trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sizewright.datasets.trials.planned_fields import gpus_of, loaders_of
from sizewright.datasets.trials.trial import Trial
from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec import Allocation, Job, Role
from sizewright.spec.metrics import PHASES

MIN_TRIAL_S = 3.0
"""Shorter training at an allocation is no evidence about it."""
_MIN_RELATIVE_SE = 0.01
_MAX_WINDOWS = 60
_ROLES = ("worker", "ps")


class _Tally(NamedTuple):
    """Sums over windows."""

    seconds: float = 0.0
    samples: int = 0
    squares: float = 0.0
    """Sum of (samples/s)², weighted by seconds."""
    windows: int = 0


class RunEvidence:
    """The trials of one run; `series` names the run, whose trials share the state of its hosts."""

    def __init__(self, job: Job, series: str, allocation: Allocation, started_at: datetime | None = None) -> None:
        self._job, self._series, self._started_at = job, series, started_at
        self._finished: list[Trial] = []
        self._windows: list[Window] = []
        self._allocation, self._tally = allocation, _Tally()

    def changed(self, allocation: Allocation) -> None:
        """Begin the trial of another allocation; a change of memory alone continues the current trial."""
        if without_memory(allocation) == without_memory(self._allocation):
            self._allocation = allocation
            return
        self._finished = self.trials()
        self._allocation, self._tally, self._windows = allocation, _Tally(), []

    def add_earlier(self, trials: Sequence[Trial]) -> None:
        """Add trials from an earlier part of the run."""
        self._finished += trials

    def add(self, window: Window) -> None:
        """Add a window of undisturbed training at the current allocation."""
        rate, tally = window.throughput, self._tally
        self._tally = _Tally(
            seconds=tally.seconds + window.seconds,
            samples=tally.samples + window.samples,
            squares=tally.squares + window.seconds * rate**2,
            windows=tally.windows + 1,
        )
        self._windows = [*self._windows[-_MAX_WINDOWS + 1 :], window]

    @property
    def workers(self) -> int:
        """Return the number of workers of the current allocation."""
        return self._allocation.replicas("worker")

    @property
    def rate(self) -> tuple[float, float]:
        """Return samples/s at the current allocation and its relative standard error; (0, inf) before any sample."""
        tally = self._tally
        if not tally.samples:
            return 0.0, math.inf
        mean = tally.samples / tally.seconds
        if tally.windows < 2:
            return mean, 1.0
        variance = max(tally.squares / tally.seconds - mean**2, 0.0) / (tally.windows - 1)
        return mean, max(math.sqrt(variance) / mean, _MIN_RELATIVE_SE)

    def current_trial(self) -> Trial | None:
        """Return the trial of the current allocation, or None while it is too short."""
        rate, error = self.rate
        if self._tally.seconds < MIN_TRIAL_S or not rate:
            return None
        allocation, training = self._allocation, self._job.training
        worker_count, ps_count = allocation.replicas("worker"), allocation.replicas("ps")
        workers, servers = self._replicas("worker"), self._replicas("ps")
        steps, exchanges = _sum(workers, "steps"), _sum(servers, "exchanges")
        phases = {f"phase_{name}": _sum(workers, name) / steps for name in PHASES} if steps else {}
        if exchanges:
            phases["ps_busy_s"] = _sum(servers, "busy_s") / exchanges
        fields = {
            "job": self._job.name,
            "job_hash": self._job.hash,
            "series": self._series,
            "started_at": self._started_at,
            "duration_s": self._tally.seconds,
            "workers": worker_count,
            "worker_cpu": allocation.cores("worker") / worker_count,
            "ps": ps_count,
            "ps_cpu": allocation.cores("ps") / ps_count if ps_count else None,
            **gpus_of(self._job, allocation),
            "loaders": loaders_of(self._job, allocation),
            "batch_size": allocation.batch_size,
            "sync": training.sync,
            "throughput": rate,
            "throughput_se": rate * min(error, 1.0),
            "worker_cpu_used": _cores_used(workers),
            "ps_cpu_used": _cores_used(servers),
            # The memory of PS grows with their tables: `memory_watch.py` follows it.
            "worker_memory_bytes": max((worker.memory_peak_bytes for worker in workers), default=0) or None,
        }
        return Trial.model_validate(fields | phases)

    def trials(self) -> list[Trial]:
        """Return one trial for each allocation that was trained at for long enough, the current one last."""
        current = self.current_trial()
        return [*self._finished, *([current] if current else [])]

    def _replicas(self, role: Role) -> list[ReplicaWindow]:
        return [replica for window in self._windows for replica in window.of(role)]


def without_memory(allocation: Allocation) -> Allocation:
    """Return the allocation without memory limits, on which its speed does not depend."""
    sides = {
        role: tuple(group.model_copy(update={"memory_bytes": 0}) for group in getattr(allocation, role))
        for role in _ROLES
    }
    return allocation.model_copy(update=sides)


def _sum(replicas: Sequence[ReplicaWindow], name: str) -> float:
    return float(sum(getattr(replica, name) for replica in replicas))


def _cores_used(replicas: Sequence[ReplicaWindow]) -> float | None:
    seconds = _sum(replicas, "seconds")
    return _sum(replicas, "cpu_s") / seconds if seconds else None
