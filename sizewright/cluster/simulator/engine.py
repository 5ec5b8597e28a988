"""The event loop of the simulation: time advances from decision to decision, and jobs end in between."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.problem.problem import Floats, Ints, Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState
from sizewright.cluster.simulator.capacity import Capacity
from sizewright.cluster.simulator.kinds import resolve_requests
from sizewright.cluster.simulator.outcome import DecisionRecord, SimulationResult, result_of
from sizewright.cluster.simulator.speeds import SPEEDS, KnownSpeeds, LearnedSpeeds
from sizewright.cluster.simulator.state import SimulationState
from sizewright.cluster.simulator.workload import Workload
from sizewright.errors import InputError
from sizewright.task_progress import report_progress

MAX_FAILURES = 1000
"""A job that has failed this often is abandoned: if failures come faster than checkpoints, it never ends."""
INSTANT_S = 1e-6
"""A time span that counts as zero in sums of floats."""
MIN_REMAINING_SHARE = 0.05
"""A job that has done more than its estimated work is taken to have this share of the estimate left."""


@dataclass(frozen=True)
class Settings:
    """Settings of a simulation. Raises InputError for values that make no sense."""

    every_s: float = 60.0
    """Minimum time between decisions; 0 decides at every arrival and end."""
    clock_s: float | None = None
    """Interval of a fixed clock, at whose ticks alone decisions are made, from time 0 on; it replaces `every_s`."""
    window_s: float = 900.0
    """Minimum time that a policy plans ahead."""
    preempts: bool = True
    """True if running jobs may be suspended."""
    until_s: float | None = None
    """The simulation ends at this time; absent, when all jobs have ended."""
    failures_a_day: float = 0.0
    """Failure rate per unit in use: per GPU, or per core of jobs without GPUs."""
    saved_every_s: float = 1800.0
    """Time between checkpoints; a failure loses the work since the last one."""
    time_limit_s: float = 1.0
    """Time limit of a decision."""
    speeds: str = "known"
    """What policies know of the speeds of jobs: "known", all of them; "learned", those at the sizes at which a job has
    run, and estimates for the others."""
    speed_error: float = 0.1
    """Standard deviation of the logarithm of an estimated speed over its mean, if speeds are learned."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.speeds not in SPEEDS:
            raise InputError(f"Speeds cannot be '{self.speeds}'.", f"Choose one of {', '.join(SPEEDS)}.")
        for name in ("every_s", "window_s", "failures_a_day", "speed_error"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be 0 or more, got {value:g}.", "Give 0 or more.")
        if self.clock_s is not None and not (np.isfinite(self.clock_s) and self.clock_s > 0):
            raise InputError(
                f"The clock must tick at intervals above 0 s, got {self.clock_s:g}.", "Give an interval such as 6m."
            )
        if self.until_s is not None and not self.until_s > 0:
            raise InputError(f"until_s must be above 0, got {self.until_s:g}.", "Choose a later end.")
        if not (self.saved_every_s > 0 and self.time_limit_s > 0):
            raise InputError("saved_every_s and time_limit_s must be above 0.", "Give seconds above 0.")


@dataclass
class Simulation:
    """One workload under one policy."""

    workload: Workload
    supply: Capacity
    policy: Allocator
    settings: Settings = field(default_factory=Settings)

    def run(self) -> SimulationResult:
        """Simulate until all jobs have ended, or until `settings.until_s`."""
        self.state = SimulationState(self.workload)
        self.rng = np.random.default_rng(self.settings.seed)
        self.decisions: list[DecisionRecord] = []
        self.note_counts = Counter[str]()
        """The notes of the policy's solutions, and in how many decisions each occurred."""
        self.speeds = KnownSpeeds(self.workload)
        if self.settings.speeds == "learned":
            self.speeds = LearnedSpeeds(self.workload, self.settings.speed_error, self.settings.seed)
        self.lifetime = self._draw_lifetimes(len(self.workload))
        """(N,): seconds × units in use after which each job fails next."""
        self.offered_s = np.zeros(len(self.workload.resources))
        self.decided_s = -np.inf
        self.decided_for = (0, 0)
        """The numbers of jobs that had arrived, and that were there, at the last decision."""
        self.capacity = self.supply.update(self.state.now_s, self.state)
        end = self.settings.until_s if self.settings.until_s is not None else np.inf
        while (now := self._next_event_s()) <= end and np.isfinite(now):
            self._advance(now)
            if now >= self._next_decision_s(now):
                self._decide()
                report_progress("simulating", self.state.came - len(self.state.live), len(self.workload))
        if np.isfinite(end):
            self._advance(end)
        return result_of(self.workload, self.state, self.decisions, self.offered_s, self.policy.name)

    def _next_event_s(self) -> float:
        """Return the next time at which a job fails, the capacity changes, or a decision may be due."""
        state, arrived_s = self.state, self.workload.arrived_s
        arrival = arrived_s[state.came] if state.came < len(arrived_s) else np.inf
        running = state.running
        end = state.ends_s(running).min() if len(running) else np.inf
        change = self.supply.next_change_s(state.now_s) if len(state.live) else np.inf
        due = float(min(arrival, end, change))
        if self.settings.clock_s is not None and self._clock_runs(due):
            due = state.now_s
        decision = self._next_decision_s(due)
        failure = state.now_s + float(self._until_failure_s(running).min(initial=np.inf))
        return min(decision, change, failure)

    def _clock_runs(self, next_s: float) -> bool:
        """Return True if the clock ticks before the next event: not if nothing runs, comes or changes any more."""
        state = self.state
        return len(state.live) > 0 and (np.isfinite(next_s) or self.decided_for != (state.came, len(state.live)))

    def _next_decision_s(self, from_s: float) -> float:
        """Return the earliest time from `from_s` on at which the policy may decide."""
        clock_s = self.settings.clock_s
        if clock_s is None:
            return max(from_s, self.decided_s + self.settings.every_s)
        if not np.isfinite(from_s):
            return from_s
        tick = math.ceil(from_s / clock_s)
        tick += tick * clock_s < from_s  # the quotient may be rounded down
        return tick * clock_s if tick * clock_s > self.decided_s else (tick + 1) * clock_s

    def _advance(self, until_s: float) -> None:
        now_s = self.state.now_s
        if now_s < self.state.counted_until_s:
            self.offered_s += self.capacity * (until_s - now_s)
        self.state.advance(until_s)
        self._fail_jobs()
        self.capacity = self.supply.update(until_s, self.state)

    def _until_failure_s(self, running: Ints) -> Floats:
        """Return the seconds (n,) until each of the running jobs (n,) fails."""
        units = self.state.units[running, self.state.column[running]]
        return np.asarray((self.lifetime[running] - self.state.hazard_s[running]) / np.maximum(units, 1e-300))

    def _fail_jobs(self) -> None:
        """Fail the running jobs whose lifetime has passed."""
        running = self.state.running
        for job in running[self._until_failure_s(running) <= INSTANT_S]:
            self.state.fail(int(job), self.settings.saved_every_s)
            if self.state.failures[job] >= MAX_FAILURES:
                self.state.abandon(int(job))
            self.state.hazard_s[job] = 0.0
            self.lifetime[job] = self._draw_lifetimes(1)[0]

    def _draw_lifetimes(self, count: int) -> Floats:
        """Draw seconds × units in use until a failure (count,); inf if there are no failures."""
        rate = self.settings.failures_a_day / 86400
        return self.rng.exponential(1 / rate, count) if rate else np.full(count, np.inf)

    def _decide(self) -> None:
        state = self.state
        self.decided_s = state.now_s
        self.decided_for = (state.came, len(state.live))
        if not len(state.live):
            return
        self.speeds.observe(state)
        answer = self.policy(self._problem(), self.settings.time_limit_s)
        utilities = answer.utilities if answer.bound is not None else None
        columns = self.supply.place(state, state.live, answer.choice, utilities)
        moved = int((columns != state.column[state.live]).sum())
        self.note_counts.update(answer.notes)
        self.decisions.append(DecisionRecord(state.now_s, len(state.live), moved, answer.seconds, answer.gap))
        state.assign(state.live, columns)

    def _problem(self) -> Problem:
        """Return the allocation problem of the live jobs."""
        state = self.state
        workload = self.workload
        live = self.state.live
        current = state.column[live]
        offered = self.speeds.offered(live)
        if not self.settings.preempts:
            offered = offered.copy()
            offered[current > 0, 0] = False
        scheduler_state = self._scheduler_state(live, current)
        requested_speed = np.maximum(scheduler_state.speed[np.arange(len(live)), scheduler_state.requested], 1e-300)
        return Problem(
            jobs=_LiveNames(workload.jobs, live),
            resources=workload.resources,
            capacity=self.capacity,
            needs=workload.needs[live],
            values=scheduler_state.speed / requested_speed[:, None],
            offered=offered,
            current=current,
            change_price=np.zeros(len(live)),
            scheduler_state=scheduler_state,
        )

    def _scheduler_state(self, live: Ints, current: Ints) -> SchedulerState:
        state, workload = self.state, self.workload
        work = workload.known_work[live]
        done = workload.work[live] - state.remaining[live]
        started_s = state.started_s[live]
        restart_s = np.where(np.isnan(started_s), workload.start_up_s[live], workload.restart_s[live])
        return SchedulerState(
            now_s=state.now_s,
            window_s=max(self.settings.clock_s or self.settings.every_s, self.settings.window_s),
            speed=self.speeds.estimates(live),
            remaining=np.maximum(work - done, MIN_REMAINING_SHARE * work),
            work=work,
            arrived_s=workload.arrived_s[live],
            started_s=started_s,
            attained=workload.units(state.attained[live]),
            restart_s=np.where(current > 0, workload.change_s[live], restart_s),
            requested=resolve_requests(workload, live, current, self.capacity),
        )


class _LiveNames(Sequence[str]):
    """The names of the live jobs, looked up on access."""

    def __init__(self, names: Sequence[str], live: Ints) -> None:
        self._names = names
        self._live = live

    def __len__(self) -> int:
        return len(self._live)

    def __getitem__(self, index: Any) -> Any:
        return self._names[int(self._live[index])]
