"""What other work on the host took from a trial: then what it measured is not the job's alone.

A replica that waits for a core while its quota leaves it room has lost it to others. How long it waits is counted by
the kernel (the run-queue delay of its threads, which contains what the quota holds back). Where the kernel does not
count that, nothing is known and nothing is concluded.
"""

from __future__ import annotations

import os
import socket

import psutil

from sizewright.datasets.trials import Trial
from sizewright.spec import Allocation, Metrics, ReplicaMetrics, Resources, Role

STARVED = 0.1
"""From this share on, the standard error of a trial contains what it may have lost to other work."""
MOST_STARVED = 0.3
"""From this share on, a trial tells more of the other work than of the job."""
_ROLES: tuple[Role, ...] = ("worker", "ps")


def busy_core_seconds() -> float:
    """Of all cores since the host began, with what its hypervisor gave to others."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle)


def others_busy_s() -> float:
    """Core seconds that all but this process used."""
    return busy_core_seconds() - sum(os.times()[:2])


def other_cores(host: str, busy_s: float, first: Metrics, last: Metrics) -> float | None:
    """Cores that others used between two looks, of `busy_s` in all; None for replicas on other hosts."""
    seconds = last.replicas[0].at_s - first.replicas[0].at_s
    if host != socket.gethostname() or seconds <= 0:
        return None
    own_s = sum(after.cpu_s - before.cpu_s for before, after in zip(first.replicas, last.replicas, strict=True))
    return max(0.0, (busy_s - own_s - (last.engine_cpu_s - first.engine_cpu_s)) / seconds)


def starved_share(allocation: Allocation, first: Metrics, last: Metrics, others: float | None) -> float:
    """Share of speed that the replica that waited most may have lost to others, who used so many cores."""
    return max(
        _starved(allowed, before, after, others)
        for role in _ROLES
        for allowed, before, after in zip(allocation.each(role), first.of(role), last.of(role), strict=True)
    )


def _starved(allowed: Resources, before: ReplicaMetrics, after: ReplicaMetrics, others: float | None) -> float:
    seconds = after.at_s - before.at_s
    used = (after.cpu_s - before.cpu_s) / seconds
    held_back = after.throttled_s - before.throttled_s
    waited = max(0.0, after.runqueue_s - before.runqueue_s - held_back) / seconds
    missing = min(max(0.0, allowed.cpu - used), waited, waited if others is None else others)
    return min(missing / (used + missing), waited, 1.0) if missing > 0 else 0.0


def widened(trial: Trial, others: float | None, share: float) -> Trial:
    """The trial with what others may have taken from it, which its standard error contains."""
    known = trial.model_copy(update={"other_cpu_used": others, "starved_share": share})
    if share < STARVED or not trial.throughput:
        return known
    return known.model_copy(
        update={
            "throughput_se": max(trial.throughput_se or 0.0, share * trial.throughput),
            "message": "Its replicas waited for cores that other work on the host used.",
        }
    )


def void_if_starved(trial: Trial) -> Trial:
    """The trial; one that lost too much to others is void, and no model learns from it."""
    if trial.status != "ok" or (trial.starved_share or 0.0) < MOST_STARVED:
        return trial
    told = f"{trial.message} Measure when nothing else runs, or accept wider intervals with --accept-drift."
    return trial.model_copy(update={"status": "void", "message": told})
