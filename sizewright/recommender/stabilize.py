"""Keeps a running job from breaking a limit or being held up by one replica: what to change, or why to wait."""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from sizewright.models._memory import rounded_up
from sizewright.recommender.action import Action
from sizewright.recommender.decisions import Forecast
from sizewright.recommender.diagnose import Finding, diagnose
from sizewright.recommender.memory_watch import MemoryWatch
from sizewright.recommender.missing import Missing
from sizewright.recommender.slow_replicas import Slow, SlowReplicas
from sizewright.recommender.windows import Doing, Window, merged
from sizewright.spec import Allocation, Capabilities, ChangeCost, Job
from sizewright.spec.units import format_bytes, format_count

OOM_RISK = 0.01
"""A PS is enlarged where it is likelier than this to break its limit before it could be enlarged at the next turn."""
_LOST_MEANWHILE = 0.1
"""Of training during a live change: cores for loading and copying."""
_MOST_WINDOWS = 20
"""Causes are looked for in so many windows at most."""
_TRIES = 3
"""So often a remedy is tried until none is slow for long, and putting replicas elsewhere once for each: the first may
go by look-ups of before keys were skewed, and a new replica may come to the same busy host."""
_MATTERS = 1.03
"""A slow replica without which the job would be less than so many times as fast holds nothing up."""
_ABLE = Capabilities(live=True, migrate=True, rebalance=True)

Tried = tuple[str, str]
"""A remedy, and the role of whom it was to help."""


class _Remedy(NamedTuple):
    """What would be done, how it is called, and how many times as fast the job would be."""

    what: str
    faster: float
    action: Action


class Stabilizer:
    """Of one job, turn by turn; `able` is what its executor can do."""

    def __init__(self, job: Job, able: Capabilities = _ABLE) -> None:
        self._job, self._able = job, able
        self._held = job.training.sync == "sync" or job.training.max_staleness is not None
        self._tried = Counter[Tried]()  # since none was slow
        self._wanted: Tried | None = None
        self.memory, self.missing = MemoryWatch(job), Missing(job)
        self._windows = deque[Window](maxlen=_MOST_WINDOWS)
        self._slow = SlowReplicas()
        self.findings: tuple[Finding, ...] = ()
        self.held_up = False
        """Whether the job is slower for a slow replica than for its allocation."""

    def look(self, window: Window, allocation: Allocation, *, whole: bool = True) -> None:
        """Take a window in; unless all replicas are there, for its memory only."""
        self.memory.add(window, _limit(allocation))
        if not whole:
            self._forget_slow()
            return
        self._windows.append(window)
        found = [(slow, self._seen(slow)) for slow in self._slow.add(window)]
        self.findings = tuple(diagnose(slow, seen) for slow, seen in found)
        self.held_up = any(_faster_without(slow, seen, held=self._held) >= _MATTERS for slow, seen in found)
        if not found and len(self._windows) == _MOST_WINDOWS:
            self._tried.clear()

    def _seen(self, slow: Slow) -> Window:
        """All windows in which it was slow: a short one may hold hardly any samples."""
        return merged(list(self._windows)[-slow.windows :])

    def relieved(self) -> None:
        """What `act` wanted last was carried out: where a replica is slow all the same, it is not wanted for ever."""
        if self._wanted:
            self._tried[self._wanted] += 1

    def forecast(self, window: Window, allocation: Allocation) -> Forecast:
        """Of the memory of its PS."""
        ps, fullest = allocation.replicas("ps"), self.memory.fullest
        at_end = self.memory.wanted_bytes(_end(window), ps) if window.samples_left is not None else None
        return Forecast(
            ps_peak_bytes=fullest.peak_bytes if fullest else None,
            ps_peak_at_end_bytes=None if at_end is None else round(at_end),
            ps_limit_bytes=_limit(allocation),
        )

    def forget(self) -> None:
        """After a change nobody is slow until it shows again, and none is missing."""
        self._forget_slow()
        self.missing.forget()

    def _forget_slow(self) -> None:
        self._slow.forget()
        self._windows.clear()
        self.findings, self.held_up = (), False

    def act(
        self,
        window: Window,
        allocation: Allocation,
        cost: ChangeCost,
        turn_s: float,
        rebalance_cost: ChangeCost | None = None,
    ) -> Action | None:
        """What is most pressing: memory first. None where nothing is wrong."""
        self._wanted = None
        return (
            self._enlarged(window, allocation, cost, turn_s)
            or self.missing.act(allocation, cost)
            or self._relieved(window, allocation, cost, rebalance_cost or cost)
        )

    def _enlarged(self, window: Window, allocation: Allocation, cost: ChangeCost, turn_s: float) -> Action | None:
        limit, ps = _limit(allocation), allocation.replicas("ps")
        soon_s = turn_s + 2 * cost.upper  # the next turn's change is to be done by then
        by_then = window.samples_trained + math.ceil(window.throughput * soon_s)
        soon = self.memory.forecast(min(by_then, _end(window)), ps)
        if not limit or soon is None or (risk := soon.oom_probability(limit)) <= OOM_RISK:
            return None
        why = f"a PS breaks its {format_bytes(limit)} within {soon_s:.0f} s with a probability of {risk:.0%}"
        end = _end(window)
        most = self._job.bounds.ps.memory_bytes[1]
        for count in range(ps, self._job.bounds.ps.replicas[1] + 1):
            wanted = self.memory.wanted_bytes(end, count)
            asked = rounded_up(wanted or 0.0)
            if wanted is not None and asked <= most:
                asked = max(asked, limit) if count == ps else asked
                told = f"{why}; {count} PS of {format_bytes(asked)} hold it to the end"
                return Action(told, target=_with_ps(allocation, count, asked))
        return Action(f"{why}, and the bounds of the job allow no more.")

    def _relieved(
        self, window: Window, allocation: Allocation, cost: ChangeCost, rebalance_cost: ChangeCost
    ) -> Action | None:
        if not self.findings:
            return None
        worst = max(self.findings, key=lambda finding: finding.slow.ratio)
        seen = self._seen(worst.slow)
        remedy = self._remedy(worst, seen, allocation)
        if isinstance(remedy, str):
            return Action(f"{worst.reason} {remedy}: it is waited.")
        most = max(_TRIES, len(window.of(worst.slow.role))) if remedy.action.migrate else _TRIES
        if (tries := self._tried[remedy.what, worst.slow.role]) >= most:
            return Action(
                f"{worst.reason} {remedy.what} was tried {format_count(tries, 'time')} and does not help: it is waited."
            )
        left = math.inf if window.samples_left is None else window.samples_left
        left_s = left / max(seen.throughput, 1e-9)
        takes_s = (rebalance_cost if remedy.action.rebalance else cost).upper
        costs_s = takes_s * (_LOST_MEANWHILE if self._able.live else 1.0)
        saved_s = max(left_s - takes_s * self._able.live, 0.0) * (1 - 1 / remedy.faster)
        if saved_s <= costs_s:
            told = f"{remedy.what} may take {takes_s:.0f} s and would save {saved_s:.0f}"
            return Action(f"{worst.reason} {told}, no more than the {costs_s:.0f} that it may cost.")
        self._wanted = remedy.what, worst.slow.role
        return remedy.action._replace(reason=f"{worst.reason} {remedy.what} saves {_seconds(saved_s)}.")

    def _remedy(self, finding: Finding, window: Window, allocation: Allocation) -> _Remedy | str:
        """What helps a slow replica, or why nothing does."""
        slow, wanted = finding.slow, finding.remedy
        if wanted == "wait":
            return "Nothing that is known would help"
        faster = _faster_without(slow, window, held=self._held)
        if getattr(self._able, wanted):
            if wanted == "migrate":
                action = Action("", migrate=(slow.name,))
                return _Remedy("Another in its place", faster, action)
            return _Remedy("Evening out the look-ups", faster, Action("", rebalance=True))
        if slow.role == "worker" and allocation.replicas("worker") < self._job.bounds.worker.replicas[1]:
            return _Remedy("One more beside it", faster, _one_more(allocation))
        return f"The executor cannot {wanted}"


def _end(window: Window) -> int:
    """Samples trained when it ends, as far as that can be told."""
    return window.samples_trained + window.expected_left


def _faster_without(slow: Slow, window: Window, *, held: bool) -> float:
    """How many times as fast the job would be were the replica as fast as the others. A slow worker that need not wait
    for them makes fewer steps; where PS are the limit hardly fewer, and nothing would be won. One that is `held` to
    their steps holds them up."""
    workers = window.of("worker")
    if slow.role == "worker" and held:
        return len(workers) / (len(workers) - 1 + 1 / slow.ratio)
    if slow.role == "worker":
        steps = {worker.name: worker.steps for worker in workers}
        lost = statistics.median(n for name, n in steps.items() if name != slow.name) - steps[slow.name]
        return 1 + max(lost, 0) / max(sum(steps.values()), 1)
    waited = _share(workers, "wait_s")
    return 1 / (1 - waited * (1 - 1 / slow.ratio))


def _one_more(allocation: Allocation) -> Action:
    """A worker like the first ones."""
    first, *rest = allocation.worker
    more = first.model_copy(update={"replicas": first.replicas + 1})
    return Action("", target=allocation.model_copy(update={"worker": (more, *rest)}))


def _share(replicas: Sequence[Doing], name: str) -> float:
    """Of their time."""
    done = float(sum(getattr(r, name) for r in replicas))
    return min(1.0, done / max(sum(r.seconds for r in replicas), 1e-9))


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if math.isfinite(value) else "time without end"


def _limit(allocation: Allocation) -> int:
    """Bytes of the smallest PS; 0 where they have no limit."""
    return min((group.memory_bytes for group in allocation.ps), default=0)


def _with_ps(allocation: Allocation, count: int, memory_bytes: int) -> Allocation:
    """As many PS as these, equal in memory, with as many cores each as the most have now."""
    most = max(allocation.ps, key=lambda group: group.cpu)
    if count == allocation.replicas("ps"):
        groups = tuple(group.model_copy(update={"memory_bytes": memory_bytes}) for group in allocation.ps)
    else:
        groups = (most.model_copy(update={"replicas": count, "memory_bytes": memory_bytes}),)
    return allocation.model_copy(update={"ps": groups})
