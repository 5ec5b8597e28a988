"""Diagnose why a replica is slower than its peers, or than it was, and choose the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from sizewright.recommender.control.stragglers import Straggler, own_seconds
from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec.metrics import PHASES
from sizewright.spec.reason import Reason

Cause = Literal[
    "cpu_cut", "busy_host", "skewed_keys", "slow_network", "starved_input", "all_cores_used", "too_few_samples",
    "unknown",
]  # fmt: skip
Remedy = Literal["migrate", "rebalance", "wait"]
_Cause = tuple[Cause, dict[str, float]]
"""A cause, and the numbers that show it."""

_MIN_EXTRA_THROTTLING = 0.15
"""Share of the time that the CPU quota throttles a replica, beyond the median of its peers."""
_MIN_LOOKUP_RATIO = 1.3
_MAX_CORE_RATIO = 0.8
"""Cores used while busy, relative to the peers: below this, the replica waits for cores that the peers have."""
_FULL_SHARE = 0.8
"""Cores used, relative to those of the allocation: from this on, a replica has its cores, and work for all of them."""
_MAIN_SHARE = 0.5
_MIN_STEPS = 50
"""With fewer steps or exchanges, an unknown cause may still show up in the measurements."""
_MIN_SKEWED, _MIN_SKEWED_WINDOWS = 200, 10
"""With fewer exchanges, or windows, the counts that look-ups are balanced by are largely from before the skew."""
_REMEDIES: dict[Cause, Remedy] = {
    "cpu_cut": "migrate",
    "busy_host": "migrate",
    "slow_network": "migrate",
    "skewed_keys": "rebalance",
    "starved_input": "wait",
    "all_cores_used": "wait",
    "too_few_samples": "wait",
    "unknown": "wait",
}
_UNKNOWN: _Cause = ("unknown", {})


class Finding(NamedTuple):
    """A straggler with its cause, the remedy, and a reason with the evidence."""

    slow: Straggler
    cause: Cause
    remedy: Remedy
    reason: Reason


def diagnose(slow: Straggler, window: Window, cores: float) -> Finding:
    """Compare a straggler with the median of the other replicas of its role, over the window in which it was slow.

    The only replica of a role is compared with its role's earlier windows. `cores` are those that a replica of the role
    has by the allocation.
    """
    peers = window.of(slow.role)
    replica = next(peer for peer in peers if peer.name == slow.name)
    others = [slow.earlier] if slow.earlier else [peer for peer in peers if peer.name != slow.name]
    if slow.role == "ps":
        cause, evidence = _ps_cause(replica, others, cores, alone=slow.earlier is not None)
        count = replica.exchanges
    else:
        cause, evidence = _worker_cause(replica, others, cores)
        count = replica.steps
    early = cause == "skewed_keys" and count < _MIN_SKEWED and slow.windows < _MIN_SKEWED_WINDOWS
    if early or (cause == "unknown" and count < _MIN_STEPS):
        cause, evidence = "too_few_samples", {"count": count}
    reason = Reason.of("straggler", replica=slow.name, role=slow.role, ratio=slow.ratio, cause=cause, **evidence)
    if slow.earlier:
        reason = reason.adding(than="earlier")
    return Finding(slow, cause, _REMEDIES[cause], reason)


def _ps_cause(replica: ReplicaWindow, others: Sequence[ReplicaWindow], cores: float, *, alone: bool) -> _Cause:
    lookups = _lookups_per_exchange(replica) / max(median(map(_lookups_per_exchange, others)), 1e-9)
    if lookups > _MIN_LOOKUP_RATIO:
        return _UNKNOWN if alone else ("skewed_keys", {"lookups": lookups})  # alone, it has more work for each batch
    return _cpu_cause(replica, others, cores) or _other_cause(replica, cores)


def _worker_cause(replica: ReplicaWindow, others: Sequence[ReplicaWindow], cores: float) -> _Cause:
    extra_s = {
        name: _seconds_per_step(replica, name) - median(_seconds_per_step(other, name) for other in others)
        for name in PHASES
    }
    slowest = max(extra_s, key=lambda name: extra_s[name])
    share = extra_s[slowest] / max(sum(seconds for seconds in extra_s.values() if seconds > 0), 1e-9)
    cpu_cause = _cpu_cause(replica, others, cores)
    if slowest == "data_s" and share > _MAIN_SHARE and (cpu_cause is None or cpu_cause[0] != "cpu_cut"):
        return "starved_input", {}
    if cpu_cause:
        return cpu_cause
    if slowest in ("pull_s", "push_s") and share > _MAIN_SHARE:
        return "slow_network", {}
    return _other_cause(replica, cores)


def _cpu_cause(replica: ReplicaWindow, others: Sequence[ReplicaWindow], cores: float) -> _Cause | None:
    """Return why the replica has too few cores; None if it has enough, or all that the allocation gives it."""
    if _has_all(replica, cores):
        return None
    throttled = replica.throttled_s / replica.seconds
    others_throttled = median(other.throttled_s / other.seconds for other in others)
    if throttled - others_throttled > _MIN_EXTRA_THROTTLING:
        return "cpu_cut", {"throttled": throttled, "others_throttled": others_throttled}
    busy_cores, others_cores = _cores_while_busy(replica), median(_cores_while_busy(other) for other in others)
    if busy_cores < _MAX_CORE_RATIO * others_cores:
        return "busy_host", {"cores": busy_cores, "others_cores": others_cores}
    return None


def _other_cause(replica: ReplicaWindow, cores: float) -> _Cause:
    if _has_all(replica, cores):
        return "all_cores_used", {"cores": replica.cpu_s / replica.seconds}
    return _UNKNOWN


def _has_all(replica: ReplicaWindow, cores: float) -> bool:
    return replica.cpu_s / replica.seconds >= _FULL_SHARE * cores


def _cores_while_busy(replica: ReplicaWindow) -> float:
    return replica.cpu_s / max(own_seconds(replica), 1e-9)


def _lookups_per_exchange(replica: ReplicaWindow) -> float:
    return replica.lookups / max(replica.exchanges, 1)


def _seconds_per_step(replica: ReplicaWindow, phase: str) -> float:
    return float(getattr(replica, phase)) / max(replica.steps, 1)
