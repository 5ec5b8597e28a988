"""The state of the jobs of a simulation."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.problem import Floats, Ints
from sizewright.cluster.simulator.workload import Workload


class SimulationState:
    """Arrays over all N jobs; `live` are the jobs that have arrived and not ended."""

    def __init__(self, workload: Workload) -> None:
        N = len(workload)
        self.workload = workload
        self.now_s = float(workload.arrived_s[0]) if N else 0.0
        self.came = 0
        """Number of jobs that have arrived."""
        self.live: Ints = np.zeros(0, dtype=np.intp)
        self.column: Ints = np.zeros(N, dtype=np.intp)
        self.remaining: Floats = workload.work.copy()
        self.stalled_until: Floats = np.zeros(N)
        self.speed_factor: Floats = np.ones(N)
        """(N,): speed on the servers that each job has, relative to the cluster's own servers."""
        self.started_s = np.full(N, np.nan)
        self.finished_s = np.full(N, np.nan)
        self.waited_s = np.zeros(N)
        self.ran_s = np.zeros(N)
        self.attained: Floats = np.zeros((N, len(workload.resources)))
        """(N, R): ∫ allocated dt of each job."""
        self.units: Floats = workload.units(workload.needs)
        """(N, K): the size of each candidate, see `Workload.units`."""
        self.trained = np.zeros(workload.speed.shape, dtype=bool)
        """(N, K): True for the columns with which a job has trained."""
        self.spread_factor = np.ones(N)
        """(N,): by how much a job is slower because it is on more hosts than it needs."""
        self.preemptions = np.zeros(N, dtype=np.intp)
        self.changes = np.zeros(N, dtype=np.intp)
        self.failures = np.zeros(N, dtype=np.intp)
        self.since_save_s: Floats = np.zeros(N)
        self.hazard_s: Floats = np.zeros(N)
        """(N,): seconds × units (`Workload.units`) since a job last failed."""
        self.used = np.zeros(len(workload.resources))
        """(R,): ∫ allocated dt, while jobs arrive."""
        last_s = float(workload.arrived_s[-1]) if N else 0.0
        self.counted_until_s = last_s if last_s > self.now_s else np.inf

    @property
    def running(self) -> Ints:
        """The live jobs that have an allocation."""
        return self.live[self.column[self.live] > 0]

    def speed_of(self, jobs: Ints) -> Floats:
        """Return the speeds (n,) of jobs (n,) with what they have."""
        factor = self.spread_factor[jobs] * self.speed_factor[jobs]
        return np.asarray(self.workload.speed[jobs, self.column[jobs]] * factor)

    def ends_s(self, jobs: Ints) -> Floats:
        """Return the times (n,) at which jobs (n,) end if nothing changes; inf for jobs that wait."""
        speed = self.speed_of(jobs)
        with np.errstate(divide="ignore"):
            seconds_left = np.where(speed > 0, self.remaining[jobs] / np.where(speed > 0, speed, 1.0), np.inf)
        return np.asarray(np.maximum(self.now_s, self.stalled_until[jobs]) + seconds_left)

    def advance(self, until_s: float) -> None:
        """Advance the time: running jobs train or end, waiting jobs wait, new jobs arrive."""
        self._train(until_s)
        self.now_s = until_s
        arrived = int(np.searchsorted(self.workload.arrived_s, until_s, side="right"))
        if arrived > self.came:
            new = np.arange(self.came, arrived)
            self.waited_s[new] += until_s - self.workload.arrived_s[new]
            self.live = np.concatenate([self.live, new])
            self.came = arrived

    def _train(self, until_s: float) -> None:
        live, column = self.live, self.column[self.live]
        if not len(live) or until_s <= self.now_s:
            return
        runs = column > 0
        jobs = live[runs]
        ends = self.ends_s(jobs)
        ended = ends <= until_s
        allocated_s = np.minimum(ends, until_s) - self.now_s
        trained_s = np.maximum(np.minimum(ends, until_s) - np.maximum(self.now_s, self.stalled_until[jobs]), 0.0)
        needs = self.workload.needs[jobs, column[runs]]
        if self.now_s < self.counted_until_s:
            self.used += allocated_s @ needs
        self.attained[jobs] += allocated_s[:, None] * needs
        self.hazard_s[jobs] += allocated_s * self.units[jobs, column[runs]]
        self.ran_s[jobs] += allocated_s
        self.since_save_s[jobs] += trained_s
        self.trained[jobs, column[runs]] |= trained_s > 0
        self.remaining[jobs] = np.where(ended, 0.0, self.remaining[jobs] - trained_s * self.speed_of(jobs))
        self.waited_s[live[~runs]] += until_s - self.now_s
        self.finished_s[jobs[ended]] = ends[ended]
        self.column[jobs[ended]] = 0
        self.live = live[~np.isfinite(self.finished_s[live])]

    def assign(self, jobs: Ints, columns: Ints) -> None:
        """Give jobs (n,) other columns (n,) from now on."""
        changed = self.column[jobs] != columns
        moved = jobs[changed]
        before, after = self.column[moved], columns[changed]
        self.column[moved] = after
        scaled = moved[(before > 0) & (after > 0)]
        self.changes[scaled] += 1
        self.stall(scaled, self.workload.change_s[scaled])
        self.preemptions[moved[(before > 0) & (after == 0)]] += 1
        starts = (before == 0) & (after > 0)
        first_start = starts & np.isnan(self.started_s[moved])
        restarted, started = moved[starts & ~first_start], moved[first_start]
        self.stall(restarted, self.workload.restart_s[restarted])
        self.stall(started, self.workload.start_up_s[started])
        self.started_s[started] = self.now_s
        self.since_save_s[moved] = 0.0

    def stall(self, jobs: Ints, seconds: Floats) -> None:
        """Stop jobs (n,) from training for `seconds` (n,), unless they are stalled for longer."""
        self.stalled_until[jobs] = np.maximum(self.stalled_until[jobs], self.now_s + seconds)

    def abandon(self, job: int) -> None:
        """Remove a job that will never end."""
        self.column[job] = 0
        self.live = self.live[self.live != job]

    def fail(self, job: int, saved_every_s: float) -> None:
        """Restart a running job from its last checkpoint."""
        self.failures[job] += 1
        lost_s = self.since_save_s[job] % saved_every_s
        lost = lost_s * float(self.speed_of(np.array([job]))[0])
        self.remaining[job] = min(self.workload.work[job], self.remaining[job] + lost)
        self.since_save_s[job] = 0.0
        self.stall(np.array([job]), self.workload.restart_s[[job]])
