"""Keep a running job within its memory limits and free of stragglers: what to change, or why not to."""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

from sizewright.models.memory._base import rounded_up
from sizewright.recommender.control.action import Action
from sizewright.recommender.control.decisions import Forecast
from sizewright.recommender.control.diagnose import Finding, diagnose
from sizewright.recommender.control.memory_watch import MemoryWatch
from sizewright.recommender.control.missing import MissingReplicas
from sizewright.recommender.control.run_evidence import without_memory
from sizewright.recommender.control.stragglers import Straggler, StragglerDetector, own_seconds
from sizewright.recommender.control.windows import ReplicaWindow, Window, merged
from sizewright.spec import Allocation, Capabilities, ChangeCost, Job, Role
from sizewright.spec.reason import Reason

OOM_RISK = 0.01
"""A PS is enlarged where it is likelier than this to exceed its limit before the next turn could enlarge it."""
_LIVE_CHANGE_LOSS = 0.1
"""Share of the training that a live change costs: cores for loading and copying."""
_MAX_WINDOWS = 20
"""Causes are diagnosed over at most this many windows."""
_MAX_TRIES = 3
"""A remedy is tried this often until no replica is slow for long; migration once per replica, if more: the first
rebalancing may use look-ups from before the keys were skewed, and a new replica may come to the same busy host."""
_MIN_SPEEDUP = 1.03
"""A straggler does not matter where the job would be less than this many times as fast without it."""
_MIN_SKEWED_EXCHANGES, _MIN_SKEWED_WINDOWS = 200, 10
"""Before a PS has been hot for as many exchanges or windows, most counts of look-ups are of the time before."""
_ALL_REMEDIES = Capabilities(live=True, migrate=True, rebalance=True)


class _Remedy(NamedTuple):
    """A remedy, how many times as fast the job would be, and the change."""

    name: Literal["migrate", "rebalance", "add_worker"]
    speedup: float
    action: Action


class Stabilizer:
    """Watch memory, missing replicas and stragglers of one job; `capabilities` are those of its executor."""

    def __init__(self, job: Job, capabilities: Capabilities = _ALL_REMEDIES) -> None:
        self._job, self._capabilities = job, capabilities
        self._lockstep = job.training.sync == "sync" or job.training.max_staleness is not None
        self._tries = Counter[tuple[str, Role]]()
        """Number of tries of each remedy for a role, since no replica was slow."""
        self._proposed: tuple[str, Role] | None = None
        self.memory, self.missing = MemoryWatch(job), MissingReplicas(job)
        self._windows = deque[Window](maxlen=_MAX_WINDOWS)
        self._detector = StragglerDetector()
        self._allocation: Allocation | None = None
        """The allocation of the latest window, without its memory limits."""
        self.findings: tuple[Finding, ...] = ()
        self.slowed_by_straggler = False

    def add(self, window: Window, allocation: Allocation, *, complete: bool = True) -> None:
        """Add a window; where replicas are missing (not `complete`), it counts for memory only."""
        self.memory.add(window, _ps_limit_bytes(allocation))
        if not complete:
            self._forget_stragglers()
            return
        if (current := without_memory(allocation)) != self._allocation:
            self._detector.forget()
            self._allocation = current
        self._windows.append(window)
        findings, self.slowed_by_straggler = [], False
        for slow in self._detector.add(window):
            slow_window = self._slow_window(slow)
            finding = diagnose(slow, slow_window, allocation)
            if _is_its_pace(finding):
                self._detector.accept(slow)
                continue
            findings.append(finding)
            if finding.cause != "all_cores_used":  # else more cores would help: its speed tells about the allocation
                speedup = _speedup_without(slow, slow_window, lockstep=self._lockstep)
                self.slowed_by_straggler |= speedup >= _MIN_SPEEDUP
        self.findings = tuple(findings)
        if not findings and len(self._windows) == _MAX_WINDOWS:
            self._tries.clear()

    def _slow_window(self, slow: Straggler) -> Window:
        """Merge the windows in which the replica was slow: a short one may hold hardly any samples."""
        return merged(list(self._windows)[-slow.windows :])

    def remedy_applied(self) -> None:
        """Count the last remedy that `act` proposed as tried, so that one that does not help is given up."""
        if self._proposed:
            self._tries[self._proposed] += 1

    def forecast(self, window: Window, allocation: Allocation) -> Forecast:
        """Return the forecast of the memory of the PS."""
        ps, fullest = allocation.replicas("ps"), self.memory.fullest
        at_end = self.memory.needed_bytes(_samples_at_end(window), ps) if window.samples_left is not None else None
        return Forecast(
            ps_peak_bytes=fullest.peak_bytes if fullest else None,
            ps_peak_at_end_bytes=None if at_end is None else round(at_end),
            ps_limit_bytes=_ps_limit_bytes(allocation),
        )

    def forget(self) -> None:
        """Forget stragglers and missing replicas, after a change."""
        self._forget_stragglers()
        self.missing.forget()

    def _forget_stragglers(self) -> None:
        self._detector.forget(earlier=False)
        self._windows.clear()
        self.findings, self.slowed_by_straggler = (), False

    def act(
        self,
        window: Window,
        allocation: Allocation,
        cost: ChangeCost,
        turn_s: float,
        rebalance_cost: ChangeCost | None = None,
    ) -> Action | None:
        """Return the most urgent action, memory first, or None where nothing is wrong."""
        self._proposed = None
        return (
            self._enlarge_ps(window, allocation, cost, turn_s)
            or self.missing.act(allocation, cost)
            or self._treat_straggler(window, allocation, cost, rebalance_cost or cost)
        )

    def _enlarge_ps(self, window: Window, allocation: Allocation, cost: ChangeCost, turn_s: float) -> Action | None:
        limit, ps = _ps_limit_bytes(allocation), allocation.replicas("ps")
        end = _samples_at_end(window)
        soon_s = turn_s + 2 * cost.upper  # a change at the next turn is done by then
        samples = window.samples_trained + math.ceil(window.throughput * soon_s)
        forecast = self.memory.forecast(min(samples, end), ps)
        if not limit or forecast is None or (risk := forecast.oom_probability(limit)) <= OOM_RISK:
            return None
        risk_reason = Reason.of("oom_risk", limit_bytes=limit, within_s=soon_s, probability=risk)
        bounds = self._job.bounds.ps
        for count in range(ps, bounds.replicas[1] + 1):
            needed = self.memory.needed_bytes(end, count)
            memory = rounded_up(needed or 0.0)
            if needed is not None and memory <= bounds.memory_bytes[1]:
                memory = max(memory, limit) if count == ps else memory
                enough = Reason.of("ps_memory_enough", ps=count, memory_bytes=memory)
                return Action((risk_reason, enough), target=_with_ps(allocation, count, memory))
        return Action((risk_reason, Reason.of("ps_memory_at_bounds")))

    def _treat_straggler(
        self, window: Window, allocation: Allocation, cost: ChangeCost, rebalance_cost: ChangeCost
    ) -> Action | None:
        if not self.findings:
            return None
        worst = max(self.findings, key=lambda finding: (finding.remedy != "wait", finding.slow.ratio))
        role = worst.slow.role
        slow_window = self._slow_window(worst.slow)
        remedy = self._remedy(worst, slow_window, allocation)
        if isinstance(remedy, Reason):
            return Action((worst.reason, remedy))
        max_tries = max(_MAX_TRIES, len(window.of(role))) if remedy.action.migrate else _MAX_TRIES
        if (tries := self._tries[remedy.name, role]) >= max_tries:
            return Action((worst.reason, Reason.of("remedy_failed", remedy=remedy.name, tries=tries)))
        samples_left = math.inf if window.samples_left is None else window.samples_left
        remaining_s = samples_left / max(slow_window.throughput, 1e-9)
        takes_s = (rebalance_cost if remedy.action.rebalance else cost).upper
        lost_s = takes_s * (_LIVE_CHANGE_LOSS if self._capabilities.live else 1.0)
        saved_s = max(remaining_s - takes_s * self._capabilities.live, 0.0) * (1 - 1 / remedy.speedup)
        if saved_s <= lost_s:
            costs = Reason.of("remedy_costs_more", remedy=remedy.name, change_s=takes_s, lost_s=lost_s, saved_s=saved_s)
            return Action((worst.reason, costs))
        self._proposed = remedy.name, role
        saves = Reason.of("remedy_saves", remedy=remedy.name, saved_s=saved_s if math.isfinite(saved_s) else None)
        return remedy.action._replace(reasons=(worst.reason, saves))

    def _remedy(self, finding: Finding, window: Window, allocation: Allocation) -> _Remedy | Reason:
        """Return what helps a straggler, or why nothing does."""
        slow = finding.slow
        if finding.remedy == "wait":
            return Reason.of("no_remedy")
        if finding.remedy == "rebalance" and slow.windows < _MIN_SKEWED_WINDOWS:
            exchanges = next(ps.exchanges for ps in window.of("ps") if ps.name == slow.name)
            if exchanges < _MIN_SKEWED_EXCHANGES:
                return Reason.of("skew_too_new")
        speedup = _speedup_without(slow, window, lockstep=self._lockstep)
        if finding.remedy == "migrate" and self._capabilities.migrate:
            return _Remedy("migrate", speedup, Action((), migrate=(slow.name,)))
        if finding.remedy == "rebalance" and self._capabilities.rebalance:
            return _Remedy("rebalance", speedup, Action((), rebalance=True))
        workers = allocation.replicas("worker")
        may_add = workers < self._job.bounds.worker.replicas[1] and self._job.splits_batch(workers + 1)
        if slow.role == "worker" and may_add:
            first, *rest = allocation.worker
            larger = first.model_copy(update={"replicas": first.replicas + 1})
            target = allocation.model_copy(update={"worker": (larger, *rest)})
            return _Remedy("add_worker", speedup, Action((), target=self._job.with_shared_batch(target)))
        return Reason.of("remedy_unsupported", remedy=finding.remedy)


def _samples_at_end(window: Window) -> int:
    """Return the expected number of samples trained when the job ends."""
    return window.samples_trained + window.expected_left


def _speedup_without(slow: Straggler, window: Window, *, lockstep: bool) -> float:
    """Return how many times as fast the job would be were the replica as fast as its peers.

    In `lockstep` all workers wait for a slow one. Otherwise a slow worker only makes fewer steps; where PS are the
    limit, hardly fewer, so that nothing would be gained. An only worker gains in the share of its time in which it
    works.
    """
    workers = window.of("worker")
    if slow.role == "worker" and slow.earlier:
        return _without(slow, sum(map(own_seconds, workers)), workers)
    if slow.role == "worker" and lockstep:
        return len(workers) / (len(workers) - 1 + 1 / slow.ratio)
    if slow.role == "worker":
        steps = {worker.name: worker.steps for worker in workers}
        lost = statistics.median(n for name, n in steps.items() if name != slow.name) - steps[slow.name]
        return 1 + max(lost, 0) / max(sum(steps.values()), 1)
    return _without(slow, sum(worker.wait_s for worker in workers), workers)


def _without(slow: Straggler, slowed_s: float, workers: Sequence[ReplicaWindow]) -> float:
    """Return the speed-up where `slowed_s` of all workers' seconds become shorter by the straggler's ratio."""
    share = min(1.0, slowed_s / max(sum(worker.seconds for worker in workers), 1e-9))
    return 1 / (1 - share * (1 - 1 / slow.ratio))


def _is_its_pace(finding: Finding) -> bool:
    """Return whether an only replica has other work than before, or nothing has helped it for long."""
    slow = finding.slow
    changed = finding.cause in ("unknown", "all_cores_used")
    return slow.earlier is not None and (changed or slow.windows >= _MAX_WINDOWS)


def _ps_limit_bytes(allocation: Allocation) -> int:
    """Return the memory limit of the smallest PS; 0 where there is none."""
    return min((group.memory_bytes for group in allocation.ps), default=0)


def _with_ps(allocation: Allocation, count: int, memory_bytes: int) -> Allocation:
    """Return the allocation with `count` PS of equal memory; other PS get the cores of the largest current ones."""
    if count == allocation.replicas("ps"):
        groups = tuple(group.model_copy(update={"memory_bytes": memory_bytes}) for group in allocation.ps)
    else:
        largest = max(allocation.ps, key=lambda group: group.cpu)
        groups = (largest.model_copy(update={"replicas": count, "memory_bytes": memory_bytes}),)
    return allocation.model_copy(update={"ps": groups})
