"""The result of a simulation: its jobs, the use of its cluster, and its decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.problem.problem import Floats, Ints
from sizewright.cluster.simulator.state import SimulationState
from sizewright.cluster.simulator.workload import Workload


class DecisionRecord(NamedTuple):
    """One decision: its time, the number of jobs, how many of them changed, its duration and its proven gap."""

    now_s: float
    jobs: int
    moved: int
    seconds: float
    gap: float | None


@dataclass(frozen=True)
class SimulationResult:
    """Arrays over the N jobs that arrived; times in seconds, NaN for jobs that did not end."""

    policy: str
    jobs: Sequence[str]
    resources: Sequence[str]
    arrived_s: Floats
    started_s: Floats
    finished_s: Floats
    waited_s: Floats
    """(N,): total time without an allocation."""
    ran_s: Floats
    preemptions: Ints
    changes: Ints
    failures: Ints
    work_s: Floats
    """(N,): seconds that each job takes with what its user requested."""
    used: Floats
    """(R,): share of the capacity that was allocated while jobs arrived; to the end, if all arrived at once."""
    allocated: Floats
    """(R,): ∫ allocated dt, in units × seconds, over the same time."""
    decisions: tuple[DecisionRecord, ...]
    capacity_s: Floats
    """(R,): ∫ capacity dt, in units × seconds, over the same time."""
    attained: Floats
    """(N, R): ∫ allocated dt of each job, in units × seconds."""

    @property
    def use(self) -> float:
        """Share of the GPUs of all kinds that was allocated; where no job uses GPUs, of the first resource."""
        count = max(sum(name == "gpu" or name.startswith(GPU) for name in self.resources), 1)
        offered = self.capacity_s[:count].sum()
        return float(self.allocated[:count].sum() / offered) if offered > 0 else 0.0

    @property
    def done(self) -> Floats:
        """Completion times of the jobs that ended."""
        times = self.finished_s - self.arrived_s
        return np.asarray(times[np.isfinite(times)])

    def figures(self) -> dict[str, float]:
        """Return means and percentiles over the jobs, by name."""
        done = self.done
        finished = np.isfinite(self.finished_s)
        seconds = np.array([each.seconds for each in self.decisions] or [0.0])
        return {
            "jobs": float(len(self.arrived_s)),
            "unfinished": float((~finished).sum()),
            "queueing_s": float(self.waited_s.mean()) if len(self.waited_s) else 0.0,
            "jct_s": _figure(np.mean, done),
            "jct_median_s": _figure(np.median, done),
            "jct_p99_s": _figure(lambda times: np.percentile(times, 99), done),
            "makespan_s": float(np.nanmax(self.finished_s) - self.arrived_s.min()) if finished.any() else 0.0,
            "use": self.use,
            **(
                {f"use_{name}": float(share) for name, share in zip(self.resources, self.used, strict=True)}
                if len(self.resources) > 1
                else {}
            ),
            "fairness": self.fairness,
            "preemptions": float(self.preemptions.sum()),
            "changes": float(self.changes.sum()),
            "failures": float(self.failures.sum()),
            "decisions": float(len(self.decisions)),
            "decision_p99_s": float(np.percentile(seconds, 99)),
        }

    @property
    def fairness(self) -> float:
        """Jain's index of the jobs' slow-down; 1 is even.

        The slow-down of a job is its completion time over its `work_s`.
        """
        finished = np.isfinite(self.finished_s)
        slow = (self.finished_s - self.arrived_s)[finished] / self.work_s[finished]
        return float(slow.sum() ** 2 / (len(slow) * (slow**2).sum())) if len(slow) else 1.0


def _figure(function: Callable[[Floats], Any], times: Floats) -> float:
    return float(function(times)) if len(times) else float("nan")


def result_of(
    workload: Workload, state: SimulationState, decisions: list[DecisionRecord], offered_s: Floats, policy: str
) -> SimulationResult:
    """Return the result of a simulation that has ended; `offered_s` (R,) is ∫ capacity dt."""
    came = slice(0, state.came)
    rows = np.arange(state.came)
    with np.errstate(invalid="ignore", divide="ignore"):
        used = np.where(offered_s > 0, state.used / offered_s, 0.0)
    return SimulationResult(
        policy=policy,
        jobs=[workload.jobs[int(row)] for row in rows],
        resources=workload.resources,
        arrived_s=workload.arrived_s[came],
        started_s=state.started_s[came],
        finished_s=state.finished_s[came],
        waited_s=state.waited_s[came],
        ran_s=state.ran_s[came],
        preemptions=state.preemptions[came],
        changes=state.changes[came],
        failures=state.failures[came],
        work_s=workload.work[came] / workload.speed[rows, workload.requested[came]],
        used=used,
        allocated=state.used,
        decisions=tuple(decisions),
        capacity_s=offered_s,
        attained=state.attained[came],
    )
