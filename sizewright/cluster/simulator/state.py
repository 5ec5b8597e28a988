"""What has become of the jobs of a simulation so far."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem import Floats, Ints
from sizewright.cluster.simulator.workload import Workload


class State:
    """Arrays of all N jobs; `live` are those that have come and are not done."""

    def __init__(self, workload: Workload) -> None:
        N = len(workload)
        self.workload = workload
        self.now_s = float(workload.arrived_s[0]) if N else 0.0
        self.came = 0
        self.live: Ints = np.zeros(0, dtype=np.intp)
        self.column: Ints = np.zeros(N, dtype=np.intp)
        self.remaining: Floats = workload.work.copy()
        self.stalled_until: Floats = np.zeros(N)
        self.started_s, self.finished_s = np.full(N, np.nan), np.full(N, np.nan)
        self.waited_s, self.ran_s, self.attained = np.zeros(N), np.zeros(N), np.zeros(N)
        self.preemptions, self.changes = np.zeros(N, dtype=np.intp), np.zeros(N, dtype=np.intp)
        self.failures = np.zeros(N, dtype=np.intp)
        self.since_save_s: Floats = np.zeros(N)
        self.hazard_s: Floats = np.zeros(N)
        """(N,): seconds × units of the first resource since a job last failed."""
        self.used = np.zeros(len(workload.resources))
        """(R,): ∫ allocated dt, while jobs come."""
        last_s = float(workload.arrived_s[-1]) if N else 0.0
        self.counted_until_s = last_s if last_s > self.now_s else np.inf

    @property
    def running(self) -> Ints:
        """Live jobs that have something."""
        return self.live[self.column[self.live] > 0]

    def speed_of(self, jobs: Ints) -> Floats:
        """(n,): with what each has."""
        return np.asarray(self.workload.speed[jobs, self.column[jobs]])

    def ends_s(self, jobs: Ints) -> Floats:
        """(n,): when each is done if nothing changes; inf where it waits."""
        speed = self.speed_of(jobs)
        with np.errstate(divide="ignore"):
            left = np.where(speed > 0, self.remaining[jobs] / np.where(speed > 0, speed, 1.0), np.inf)
        return np.asarray(np.maximum(self.now_s, self.stalled_until[jobs]) + left)

    def advance(self, until_s: float) -> None:
        """Let time pass: what runs trains, what is done leaves, what waits waits, what has come is there."""
        self._pass(until_s)
        self.now_s = until_s
        arrived = int(np.searchsorted(self.workload.arrived_s, until_s, side="right"))
        if arrived > self.came:
            new = np.arange(self.came, arrived)
            self.waited_s[new] += until_s - self.workload.arrived_s[new]
            self.live, self.came = np.concatenate([self.live, new]), arrived

    def _pass(self, until_s: float) -> None:
        live, column = self.live, self.column[self.live]
        if not len(live) or until_s <= self.now_s:
            return
        runs = column > 0
        jobs = live[runs]
        ends = self.ends_s(jobs)
        done = ends <= until_s
        held = np.minimum(ends, until_s) - self.now_s
        trained = np.maximum(np.minimum(ends, until_s) - np.maximum(self.now_s, self.stalled_until[jobs]), 0.0)
        needs = self.workload.needs[jobs, column[runs]]
        if self.now_s < self.counted_until_s:
            self.used += held @ needs
        self.attained[jobs] += held * needs[:, 0]
        self.hazard_s[jobs] += held * needs[:, 0]
        self.ran_s[jobs] += held
        self.since_save_s[jobs] += trained
        self.remaining[jobs] = np.where(done, 0.0, self.remaining[jobs] - trained * self.speed_of(jobs))
        self.waited_s[live[~runs]] += until_s - self.now_s
        self.finished_s[jobs[done]] = ends[done]
        self.column[jobs[done]] = 0
        self.live = live[~np.isfinite(self.finished_s[live])]

    def give(self, jobs: Ints, columns: Ints) -> None:
        """Each of the jobs has another column from now on."""
        before, workload = self.column[jobs], self.workload
        moved = jobs[before != columns]
        was, now = before[before != columns], columns[before != columns]
        self.column[moved] = now
        scaled, stopped, begins = (was > 0) & (now > 0), (was > 0) & (now == 0), (was == 0) & (now > 0)
        self.changes[moved[scaled]] += 1
        self.preemptions[moved[stopped]] += 1
        self._stall(moved[scaled], workload.change_s[moved[scaled]])
        fresh = begins & np.isnan(self.started_s[moved])
        again = moved[begins & ~fresh]
        self._stall(again, workload.restart_s[again])
        self.started_s[moved[fresh]] = self.now_s
        self.since_save_s[moved] = 0.0

    def _stall(self, jobs: Ints, seconds: Floats) -> None:
        """They stand still for so long (n,), or for longer where they do already."""
        self.stalled_until[jobs] = np.maximum(self.stalled_until[jobs], self.now_s + seconds)

    def give_up(self, job: int) -> None:
        """It leaves, and is never done."""
        self.column[job] = 0
        self.live = self.live[self.live != job]

    def fail(self, job: int, saved_every_s: float) -> None:
        """A running job goes back to its last save, and starts again."""
        self.failures[job] += 1
        lost_s = self.since_save_s[job] % saved_every_s
        self.remaining[job] = min(
            self.workload.work[job], self.remaining[job] + lost_s * self.workload.speed[job, self.column[job]]
        )
        self.since_save_s[job] = 0.0
        self._stall(np.array([job]), self.workload.restart_s[[job]])
