"""An allocator in its own package: AFS-L, Apathetic Future Share (Hwang et al., NSDI 2021).

It allocates one unit at a time. Of two jobs a and b, where a would finish first at the present allocation, b gets the
next unit if

    (s_b(k+1) − s_b(k)) / s_b(k+1)  >  (s_a(k+1) − s_a(k)) / s_a(k)

where s(k) is the speed with k units; otherwise a gets it. Short jobs come first unless a long one benefits much more.
Among many jobs, each is compared with the winner so far, from the shortest to the longest. Here a step goes from one
candidate of a job to its next larger one that is faster, and both sides are divided by the share of the cluster that
the step takes.

The package is complete: `test_contract.py` runs the contract of allocators, and `pyproject.toml` registers the name.
"""

from __future__ import annotations

import numpy as np

from sizewright.cluster import Problem, Solution, chosen
from sizewright.cluster.allocators import Allocator, frontier, scheduler_state_of, valued

ROUNDING = 1 + 1e-9


class AfsL(Allocator):
    """Gives the next unit to the shorter of two jobs, unless the longer one gains more from it."""

    name = "afs-l"
    one_kind = True  # a step leads to the next larger candidate, of whatever kind it is

    def choose(self, problem: Problem, until: float) -> Solution:
        """Return one column (J,) per job; a job whose next step does not fit gets no further steps."""
        scheduler_state, jobs = scheduler_state_of(problem, self.name), np.arange(len(problem.jobs))
        # the upgrades of each job, from its floor upwards
        upgrades = frontier(valued(problem, scheduler_state.speed), problem.share)
        steps = (jobs[:, None], upgrades.columns)
        speed, share, needs = scheduler_state.speed[steps], problem.share[steps], problem.needs[steps]
        level, active = np.zeros(len(jobs), dtype=np.intp), upgrades.heights > 1
        free = problem.capacity * ROUNDING - problem.used(problem.floor)
        while active.any():
            candidates = np.flatnonzero(active)
            now, then = (candidates, level[candidates]), (candidates, level[candidates] + 1)
            remaining = scheduler_state.remaining[candidates]
            job = candidates[_next_job(speed[now], speed[then], share[then] - share[now], remaining)]
            more = needs[job, level[job] + 1] - needs[job, level[job]]
            if (more <= free).all():
                level[job], free = level[job] + 1, free - more
                active[job] = level[job] + 1 < upgrades.heights[job]
            else:
                active[job] = False
        return chosen(problem, self.name, upgrades.columns[jobs, level])


def _next_job(speed: np.ndarray, next_speed: np.ndarray, step_share: np.ndarray, remaining: np.ndarray) -> int:
    """Return the index of the job that gets the next step, from arrays (n,) over jobs.

    The length of a job without resources is computed at its first step. If it is the shorter one, its gain is infinite.
    """
    order = np.argsort(remaining / np.where(speed > 0, speed, next_speed), kind="stable")
    with np.errstate(divide="ignore"):
        gain_if_longer = ((next_speed - speed) / next_speed / step_share)[order]
        gain_if_shorter = ((next_speed - speed) / speed / step_share)[order]
    winner = 0
    while (wins := gain_if_longer[winner + 1 :] > gain_if_shorter[winner]).any():
        winner += 1 + int(wins.argmax())
    return int(order[winner])
