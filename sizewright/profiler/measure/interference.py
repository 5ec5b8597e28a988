"""Detect interference: other work on the host that took cores from a trial.

A replica that waits for a core although its quota has room has lost it to other work. The kernel counts how long it
waits (the run-queue delay of its threads, which includes throttling by the quota). Without this counter, no
interference is reported.
"""

from __future__ import annotations

import os
import socket

import psutil

from sizewright.datasets.trials.trial import Trial
from sizewright.spec import Allocation, Metrics, ReplicaMetrics, Resources, Role

STARVED = 0.1
"""Lost share of speed from which the standard error of a trial is widened by it."""
MAX_STARVED = 0.3
"""Lost share of speed from which a trial is void."""
_ROLES: tuple[Role, ...] = ("worker", "ps")


def busy_core_seconds() -> float:
    """Return the busy seconds of all cores since boot, including time that the hypervisor gave to others."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle)


def others_busy_s() -> float:
    """Return the core seconds that all other processes used since boot."""
    return busy_core_seconds() - sum(os.times()[:2])


def other_cores(host: str, busy_s: float, first: Metrics, last: Metrics) -> float | None:
    """Return the cores that other work used between two observations, or None for replicas on another host.

    `busy_s` is the difference of `others_busy_s` between them.
    """
    seconds = last.replicas[0].at_s - first.replicas[0].at_s
    if host != socket.gethostname() or seconds <= 0:
        return None
    replicas_s = sum(after.cpu_s - before.cpu_s for before, after in zip(first.replicas, last.replicas, strict=True))
    engine_s = last.engine_cpu_s - first.engine_cpu_s
    return max(0.0, (busy_s - replicas_s - engine_s) / seconds)


def starved_share(allocation: Allocation, first: Metrics, last: Metrics, others: float | None) -> float:
    """Return the largest share of speed that a replica may have lost to other work, which used `others` cores."""
    return max(
        _starved(allowed, before, after, others)
        for role in _ROLES
        for allowed, before, after in zip(allocation.each(role), first.of(role), last.of(role), strict=True)
    )


def _starved(allowed: Resources, before: ReplicaMetrics, after: ReplicaMetrics, others: float | None) -> float:
    seconds = after.at_s - before.at_s
    used = (after.cpu_s - before.cpu_s) / seconds
    throttled_s = after.throttled_s - before.throttled_s
    waited = max(0.0, after.runqueue_s - before.runqueue_s - throttled_s) / seconds
    missing = min(max(0.0, allowed.cpu - used), waited, waited if others is None else others)
    return min(missing / (used + missing), waited, 1.0) if missing > 0 else 0.0


def widened(trial: Trial, others: float | None, share: float) -> Trial:
    """Return the trial with its interference recorded, and its standard error widened if that is considerable."""
    recorded = trial.model_copy(update={"other_cpu_used": others, "starved_share": share})
    if share < STARVED or not trial.throughput:
        return recorded
    return recorded.model_copy(
        update={
            "throughput_se": max(trial.throughput_se or 0.0, share * trial.throughput),
            "message": "Replicas waited for cores that other work on the host used.",
        }
    )


def void_if_starved(trial: Trial) -> Trial:
    """Return the trial, marked as void if it lost too much speed to other work."""
    if trial.status != "ok" or (trial.starved_share or 0.0) < MAX_STARVED:
        return trial
    message = f"{trial.message} Measure while the host is idle, or accept wider intervals with --accept-drift."
    return trial.model_copy(update={"status": "void", "message": message})
