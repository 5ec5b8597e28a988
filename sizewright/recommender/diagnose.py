"""Why a replica is slower than those beside it, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from sizewright.recommender.slow_replicas import Slow
from sizewright.recommender.windows import Doing, Window

Cause = Literal[
    "cpu_cut", "busy_host", "skewed_keys", "slow_network", "starved_input", "too_few_samples", "unknown"
]  # fmt: skip
Remedy = Literal["migrate", "rebalance", "wait"]

_THROTTLED_MORE = 0.15
"""Share of the time that a replica is held back by its quota, beyond the others."""
_LOOKUPS_MORE = 1.3
_CPU_LESS = 0.8
"""Of the others' cores used while busy: it waits for a core that others have."""
_MOST_OF_IT = 0.5
_ENOUGH_STEPS = 50
"""Steps, or exchanges, of which nothing that is measured tells why it is slow: with fewer it may yet show."""
_REMEDIES: dict[Cause, Remedy] = {
    "cpu_cut": "migrate", "busy_host": "migrate", "slow_network": "migrate", "skewed_keys": "rebalance",
    "starved_input": "wait", "too_few_samples": "wait", "unknown": "wait",
}  # fmt: skip


class Finding(NamedTuple):
    """A slow replica with the cause, what to do, and what it rests on, in a sentence."""

    slow: Slow
    cause: Cause
    remedy: Remedy
    reason: str


def diagnose(slow: Slow, window: Window) -> Finding:
    """By what it did in the window, in which it was slow, against the median of the others of its role."""
    peers = window.of(slow.role)
    own = next(replica for replica in peers if replica.name == slow.name)
    others = [replica for replica in peers if replica.name != slow.name]
    cause, why = (_of_ps if slow.role == "ps" else _of_worker)(own, others)
    times = own.exchanges if slow.role == "ps" else own.steps
    if cause == "unknown" and times < _ENOUGH_STEPS:
        cause, why = "too_few_samples", f"{times} are too few to say why"
    what = "an exchange" if slow.role == "ps" else "a step"
    return Finding(
        slow, cause, _REMEDIES[cause], f"{slow.name} takes {slow.ratio:.1f} times as long for {what}: {why}."
    )


def _lookups(own: Doing, others: Sequence[Doing]) -> float:
    """How many times as many as the others."""
    return own.lookups / max(median(other.lookups for other in others), 1)


def _of_ps(own: Doing, others: Sequence[Doing]) -> tuple[Cause, str]:
    lookups = _lookups(own, others)
    if lookups > _LOOKUPS_MORE:
        return "skewed_keys", f"it is asked for {lookups:.1f} times as many rows as the others"
    return _held_back(own, others) or ("unknown", "nothing measured tells why")


def _of_worker(own: Doing, others: Sequence[Doing]) -> tuple[Cause, str]:
    longer = {name: _each(own, name) - median(_each(other, name) for other in others) for name in _PHASES}
    most = max(longer, key=lambda name: longer[name])
    share = longer[most] / max(sum(seconds for seconds in longer.values() if seconds > 0), 1e-9)
    held_back = _held_back(own, others)
    if most == "data_s" and share > _MOST_OF_IT and (held_back is None or held_back[0] != "cpu_cut"):
        return "starved_input", "most of that is waiting for samples"
    if held_back:
        return held_back
    if most in ("pull_s", "push_s") and share > _MOST_OF_IT:
        return "slow_network", "most of that is sending and receiving rows"
    return "unknown", "nothing measured tells why"


_PHASES = ("data_s", "pull_s", "compute_s", "push_s")


def _held_back(own: Doing, others: Sequence[Doing]) -> tuple[Cause, str] | None:
    throttled = own.throttled_s / own.seconds
    usual = median(other.throttled_s / other.seconds for other in others)
    if throttled - usual > _THROTTLED_MORE:
        return "cpu_cut", f"its quota holds it back {throttled:.0%} of the time, the others {usual:.0%}"
    cores, theirs = _cores_while_busy(own), median(_cores_while_busy(other) for other in others)
    if cores < _CPU_LESS * theirs:
        return "busy_host", f"while it works it gets {cores:.2f} cores, the others {theirs:.2f}"
    return None


def _cores_while_busy(replica: Doing) -> float:
    busy = replica.busy_s if replica.role == "ps" else sum(getattr(replica, name) for name in _PHASES)
    return replica.cpu_s / max(busy, 1e-9)


def _each(replica: Doing, phase: str) -> float:
    return float(getattr(replica, phase)) / max(replica.steps, 1)
