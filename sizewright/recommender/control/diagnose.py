"""Diagnose why a replica is slower than its peers, or than it was, and choose the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from sizewright.recommender.control.stragglers import Straggler, own_seconds
from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec import Allocation
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
"""Cores used by a PS, relative to those of the allocation: from this on, it has its cores, and work for all of them."""
_MAX_UNEXPLAINED = 1.5
"""An only PS takes at most this many times as long as more look-ups explain."""
_MAIN_SHARE = 0.5
_MIN_STEPS = 50
"""With fewer steps or exchanges, an unknown cause may still show up in the measurements."""
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


def diagnose(slow: Straggler, window: Window, allocation: Allocation) -> Finding:
    """Compare a straggler with the median of the other replicas of its role, over the window in which it was slow.

    The only replica of a role is compared with its role's earlier windows.
    """
    peers = window.of(slow.role)
    replica = next(peer for peer in peers if peer.name == slow.name)
    others = [slow.earlier] if slow.earlier else [peer for peer in peers if peer.name != slow.name]
    if slow.role == "ps":
        cause, evidence = _ps_cause(slow, replica, others, allocation)
        count = replica.exchanges
    else:
        may_wait_for_gpu = slow.earlier is not None and allocation.gpus("worker") > 0
        cause, evidence = _worker_cause(replica, others, may_wait_for_gpu=may_wait_for_gpu)
        count = replica.steps
    if cause == "unknown" and count < _MIN_STEPS:
        cause, evidence = "too_few_samples", {"count": count}
    reason = Reason.of("straggler", replica=slow.name, role=slow.role, ratio=slow.ratio, cause=cause, **evidence)
    if slow.earlier:
        reason = reason.adding(than="earlier")
    return Finding(slow, cause, _REMEDIES[cause], reason)


def _ps_cause(
    slow: Straggler, replica: ReplicaWindow, others: Sequence[ReplicaWindow], allocation: Allocation
) -> _Cause:
    lookups = _lookups_per_exchange(replica) / max(median(map(_lookups_per_exchange, others)), 1e-9)
    if lookups > _MIN_LOOKUP_RATIO and slow.earlier is None:
        return "skewed_keys", {"lookups": lookups}
    if lookups > _MIN_LOOKUP_RATIO and slow.ratio < _MAX_UNEXPLAINED * lookups:
        return _UNKNOWN  # each batch has more look-ups than before
    cores = {group.cpu for group in allocation.ps}
    used = replica.cpu_s / replica.seconds
    if len(cores) == 1 and used >= _FULL_SHARE * cores.pop():
        return "all_cores_used", {"cores": used}
    return _cpu_cause(replica, others) or _UNKNOWN


def _worker_cause(replica: ReplicaWindow, others: Sequence[ReplicaWindow], *, may_wait_for_gpu: bool) -> _Cause:
    extra_s = {
        name: _seconds_per_step(replica, name) - median(_seconds_per_step(other, name) for other in others)
        for name in PHASES
    }
    slowest = max(extra_s, key=lambda name: extra_s[name])
    share = extra_s[slowest] / max(sum(seconds for seconds in extra_s.values() if seconds > 0), 1e-9)
    cpu_cause = _cpu_cause(replica, others)
    if slowest == "data_s" and share > _MAIN_SHARE and (cpu_cause is None or cpu_cause[0] != "cpu_cut"):
        return "starved_input", {}
    if cpu_cause and not (cpu_cause[0] == "busy_host" and may_wait_for_gpu):
        return cpu_cause
    if slowest in ("pull_s", "push_s") and share > _MAIN_SHARE:
        return "slow_network", {}
    return _UNKNOWN


def _cpu_cause(replica: ReplicaWindow, others: Sequence[ReplicaWindow]) -> _Cause | None:
    throttled = replica.throttled_s / replica.seconds
    others_throttled = median(other.throttled_s / other.seconds for other in others)
    if throttled - others_throttled > _MIN_EXTRA_THROTTLING:
        # Seconds of several cores are summed.
        return "cpu_cut", {"throttled": min(throttled, 1.0), "others_throttled": min(others_throttled, 1.0)}
    cores, others_cores = _cores_while_busy(replica), median(_cores_while_busy(other) for other in others)
    if cores < _MAX_CORE_RATIO * others_cores:
        return "busy_host", {"cores": cores, "others_cores": others_cores}
    return None


def _cores_while_busy(replica: ReplicaWindow) -> float:
    return replica.cpu_s / max(own_seconds(replica), 1e-9)


def _lookups_per_exchange(replica: ReplicaWindow) -> float:
    return replica.lookups / max(replica.exchanges, 1)


def _seconds_per_step(replica: ReplicaWindow, phase: str) -> float:
    return float(getattr(replica, phase)) / max(replica.steps, 1)
