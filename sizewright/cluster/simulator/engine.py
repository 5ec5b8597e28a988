"""The simulation itself: time goes from decision to decision; what is done in between ends when it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import Floats, Ints, Problem
from sizewright.cluster.simulator.outcome import Decision, Result, result_of
from sizewright.cluster.simulator.state import State
from sizewright.cluster.simulator.supply import Supply
from sizewright.cluster.simulator.workload import Workload
from sizewright.errors import InputError
from sizewright.how_far import tell


@dataclass(frozen=True)
class Settings:
    """How a simulation is run. Raises InputError for times that cannot be."""

    every_s: float = 60.0
    """Least time between decisions; 0 decides at every arrival and end."""
    window_s: float = 900.0
    """For which a policy plans ahead, at least."""
    preempts: bool = True
    """Whether running jobs may be put off."""
    until_s: float | None = None
    """Ends then, whatever is left; absent: when all is done."""
    failures_a_day: float = 0.0
    """Of each unit of the first resource that is in use."""
    saved_every_s: float = 1800.0
    """Work since the last save is lost by a failure."""
    time_limit_s: float = 1.0
    """Of a decision."""
    seed: int = 0

    def __post_init__(self) -> None:
        told = {"every_s": self.every_s, "window_s": self.window_s, "failures_a_day": self.failures_a_day}
        for name, value in told.items():
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name} is {value:g}.", "Give 0 or more.")
        if self.until_s is not None and not self.until_s > 0:
            raise InputError(f"A simulation of {self.until_s:g} s shows nothing.", "Let it end later.")
        if not (self.saved_every_s > 0 and self.time_limit_s > 0):
            raise InputError("A save and a decision need some time.", "Give seconds above 0.")


@dataclass
class Simulation:
    """One workload under one policy."""

    workload: Workload
    supply: Supply
    policy: Allocator
    settings: Settings = field(default_factory=Settings)

    def run(self) -> Result:
        """To the end, or to `settings.until_s`."""
        self.state = State(self.workload)
        self.rng = np.random.default_rng(self.settings.seed)
        self.decisions: list[Decision] = []
        self.told = Counter[str]()
        self.lasts_s = self._drawn(len(self.workload))
        self.offered_s = np.zeros(len(self.workload.resources))
        self.decided_s, self.capacity = -np.inf, self.supply.at(self.state.now_s, self.state)
        end = self.settings.until_s if self.settings.until_s is not None else np.inf
        while (now := self._next_s()) <= end and np.isfinite(now):
            self._pass(now)
            if now >= self.decided_s + self.settings.every_s:
                self._decide()
                tell("simulating", self.state.came - len(self.state.live), len(self.workload))
        if np.isfinite(end):
            self._pass(end)
        return result_of(self.workload, self.state, self.decisions, self.offered_s, self.policy.name)

    def _next_s(self) -> float:
        """The next time at which a job fails, servers come or go, or there may be something to decide."""
        state, arrived = self.state, self.workload.arrived_s
        arrival = arrived[state.came] if state.came < len(arrived) else np.inf
        running = state.running
        ends = state.ends_s(running).min() if len(running) else np.inf
        changes = self.supply.changes_s(state.now_s) if len(state.live) else np.inf
        decides = max(float(min(arrival, ends, changes)), self.decided_s + self.settings.every_s)
        return min(decides, changes, self._fails_s(running))

    def _pass(self, until_s: float) -> None:
        before = self.state.now_s
        if before < self.state.counted_until_s:
            self.offered_s += self.capacity * (until_s - before)
        self.state.advance(until_s)
        self._fail()
        self.capacity = self.supply.at(until_s, self.state)

    def _fails_s(self, running: Ints) -> float:
        """When the next of the running jobs fails: after as many units × seconds as were drawn for it."""
        return self.state.now_s + float(self._lasting_s(running).min(initial=np.inf))

    def _lasting_s(self, running: Ints) -> Floats:
        units = self.workload.needs[running, self.state.column[running], 0]
        return np.asarray((self.lasts_s[running] - self.state.hazard_s[running]) / np.maximum(units, 1e-300))

    def _fail(self) -> None:
        """What has lasted as long as was drawn for it."""
        running = self.state.running
        for job in running[self._lasting_s(running) <= INSTANT_S]:
            self.state.fail(int(job), self.settings.saved_every_s)
            if self.state.failures[job] >= MOST_FAILURES:
                self.state.give_up(int(job))
            self.state.hazard_s[job], self.lasts_s[job] = 0.0, self._drawn(1)[0]

    def _drawn(self, count: int) -> Floats:
        """(count,): units of the first resource × seconds until a failure; inf where there are none."""
        rate = self.settings.failures_a_day / 86400
        return self.rng.exponential(1 / rate, count) if rate else np.full(count, np.inf)

    def _decide(self) -> None:
        state = self.state
        self.decided_s = state.now_s
        if not len(state.live):
            return
        problem = self._problem()
        answer = self.policy(problem, self.settings.time_limit_s)
        worth = answer.worth if answer.bound is not None else None
        columns = self.supply.place(state, state.live, answer.choice, worth)
        moved = int((columns != state.column[state.live]).sum())
        self.told.update(answer.notes)
        self.decisions.append(Decision(state.now_s, len(state.live), moved, answer.seconds, answer.gap))
        state.give(state.live, columns)

    def _problem(self) -> Problem:
        """What is to be decided now."""
        state, workload, live = self.state, self.workload, self.state.live
        current, offered = state.column[live], workload.offered[live]
        if not self.settings.preempts:
            offered = offered.copy()
            offered[current > 0, 0] = False
        facts = self._facts(live, current)
        value = facts.speed / np.maximum(facts.speed[np.arange(len(live)), workload.requested[live]], 1e-300)[:, None]
        return Problem(
            _Names(workload.jobs, live), workload.resources, self.capacity, workload.needs[live], value, offered,
            current, np.zeros(len(live)), facts,
        )  # fmt: skip

    def _facts(self, live: Ints, current: Ints) -> Facts:
        state, workload = self.state, self.workload
        known, done = workload.known_work[live], workload.work[live] - state.remaining[live]
        started = state.started_s[live]
        restart = np.where(
            current > 0, workload.change_s[live], np.where(np.isnan(started), 0, workload.restart_s[live])
        )
        return Facts(
            now_s=state.now_s,
            window_s=max(self.settings.every_s, self.settings.window_s),
            speed=workload.speed[live],
            remaining=np.maximum(known - done, LEAST_LEFT * known),
            work=known,
            arrived_s=workload.arrived_s[live],
            started_s=started,
            attained=state.attained[live],
            restart_s=restart,
            requested=workload.requested[live],
        )


MOST_FAILURES = 1000
"""A job that has failed so often is given up: where failures come faster than saves it would never be done."""
INSTANT_S = 1e-6
"""No time at all, in sums of floats."""
LEAST_LEFT = 0.05
"""Of the work that a job was known to have: so much is thought to be left where it has done more."""


class _Names(Sequence[str]):
    """Names of the live jobs, looked up when asked for."""

    def __init__(self, names: Sequence[str], live: Ints) -> None:
        self._names, self._live = names, live

    def __len__(self) -> int:
        return len(self._live)

    def __getitem__(self, index: Any) -> Any:
        return self._names[int(self._live[index])]
