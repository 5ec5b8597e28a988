"""What a simulation tells of its jobs, its cluster and its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sizewright.cluster.problem import Floats, Ints
from sizewright.cluster.simulator.state import State
from sizewright.cluster.simulator.workload import Workload


class Decision(NamedTuple):
    """One decision: when, over how many jobs, how many got something else, how long it took, its proven gap."""

    now_s: float
    jobs: int
    moved: int
    seconds: float
    gap: float | None


@dataclass(frozen=True)
class Result:
    """Of the N jobs that came; times in seconds, nan for those that were not done."""

    policy: str
    arrived_s: Floats
    started_s: Floats
    finished_s: Floats
    waited_s: Floats
    """(N,): without anything, in sum."""
    ran_s: Floats
    preemptions: Ints
    changes: Ints
    failures: Ints
    work_s: Floats
    """(N,): seconds that each job takes with what its user asked for."""
    used: Floats
    """(R,): share of what there was that was allocated, while jobs came; to the end, where all came at once."""
    allocated: Floats
    """(R,): ∫ allocated dt, in units × seconds, over the same time."""
    decisions: tuple[Decision, ...]

    @property
    def done(self) -> Floats:
        """(N,): completion times of the jobs that are done."""
        times = self.finished_s - self.arrived_s
        return np.asarray(times[np.isfinite(times)])

    def figures(self) -> dict[str, float]:
        """Means and percentiles over the jobs, by name."""
        done = self.done
        finished = np.isfinite(self.finished_s)
        seconds = np.array([each.seconds for each in self.decisions] or [0.0])
        return {
            "jobs": float(len(self.arrived_s)),
            "unfinished": float((~finished).sum()),
            "queueing_s": float(self.waited_s.mean()) if len(self.waited_s) else 0.0,
            "jct_s": _of(np.mean, done),
            "jct_median_s": _of(np.median, done),
            "jct_p99_s": _of(lambda times: np.percentile(times, 99), done),
            "makespan_s": float(np.nanmax(self.finished_s) - self.arrived_s.min()) if finished.any() else 0.0,
            "use": float(self.used[0]),
            "fairness": self.fairness,
            "preemptions": float(self.preemptions.sum()),
            "changes": float(self.changes.sum()),
            "failures": float(self.failures.sum()),
            "decisions": float(len(self.decisions)),
            "decision_p99_s": float(np.percentile(seconds, 99)),
        }

    @property
    def fairness(self) -> float:
        """Jain's index of the jobs' slow-down, completion time over that with what its user asked for: 1 is even."""
        finished = np.isfinite(self.finished_s)
        slow = (self.finished_s - self.arrived_s)[finished] / self.work_s[finished]
        return float(slow.sum() ** 2 / (len(slow) * (slow**2).sum())) if len(slow) else 1.0


def _of(figure: object, times: Floats) -> float:
    return float(figure(times)) if len(times) else float("nan")  # type: ignore[operator]


def result_of(workload: Workload, state: State, decisions: list[Decision], offered_s: Floats, policy: str) -> Result:
    """The result of a state that is over; `offered_s` (R,) is ∫ capacity dt."""
    came = slice(0, state.came)
    rows = np.arange(state.came)
    with np.errstate(invalid="ignore", divide="ignore"):
        used = np.where(offered_s > 0, state.used / offered_s, 0.0)
    return Result(
        policy, workload.arrived_s[came], state.started_s[came], state.finished_s[came], state.waited_s[came],
        state.ran_s[came], state.preemptions[came], state.changes[came], state.failures[came],
        workload.work[came] / workload.speed[rows, workload.requested[came]], used, state.used, tuple(decisions),
    )  # fmt: skip
