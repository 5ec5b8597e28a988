"""An allocator of one's own: AFS-L, Apathetic Future Share (Hwang et al., NSDI 2021).

Units are given one at a time. Of two jobs a and b, of which a is done sooner with what each has, b has the next unit if

    (s_b(k+1) − s_b(k)) / s_b(k+1)  >  (s_a(k+1) − s_a(k)) / s_a(k)

where s(k) is the speed with k units; else a has it: short jobs come first unless a long one makes much more of it. Of
many jobs it is who wins against the one before, from the shortest to the longest. Here a step goes from one candidate
of a job to its next larger one that is faster, and both sides are over the share of the cluster that the step takes.

It is complete: it keeps the contract of allocators, which `test_contract.py` beside it holds it against, and is found
by name once the package is installed, since `pyproject.toml` registers it.
"""

from __future__ import annotations

import numpy as np

from sizewright.cluster import Problem, Solution, chosen
from sizewright.cluster.allocators import Allocator, frontier, scheduler_state_of, valued

ROUNDING = 1 + 1e-9


class AfsL(Allocator):
    """Of two jobs the shorter has the next unit, unless the longer gains more by it."""

    name = "afs-l"
    origin = "AFS, NSDI 2021"

    def choose(self, problem: Problem, until: float) -> Solution:
        """One column (J,) for each job; a job whose next step does not fit climbs no further."""
        scheduler_state, jobs = scheduler_state_of(problem, self.name), np.arange(len(problem.jobs))
        # from what a job is left with, upwards
        ladder = frontier(valued(problem, scheduler_state.speed), problem.share)
        rungs = (jobs[:, None], ladder.columns)
        speed, share, needs = scheduler_state.speed[rungs], problem.share[rungs], problem.needs[rungs]
        at, climbs = np.zeros(len(jobs), dtype=np.intp), ladder.heights > 1
        left = problem.capacity * ROUNDING - problem.used(problem.floor)
        while climbs.any():
            able = np.flatnonzero(climbs)
            now, then = (able, at[able]), (able, at[able] + 1)
            job = able[_next(speed[now], speed[then], share[then] - share[now], scheduler_state.remaining[able])]
            more = needs[job, at[job] + 1] - needs[job, at[job]]
            if (more <= left).all():
                at[job], left = at[job] + 1, left - more
                climbs[job] = at[job] + 1 < ladder.heights[job]
            else:
                climbs[job] = False
        return chosen(problem, self.name, ladder.columns[jobs, at])


def _next(now: np.ndarray, then: np.ndarray, step: np.ndarray, remaining: np.ndarray) -> int:
    """Whose turn it is, of jobs (n,) of these speeds with what they have and a step further.

    A job that has nothing is as long as with its first step, by which it gains without bound if it is the shorter.
    """
    order = np.argsort(remaining / np.where(now > 0, now, then), kind="stable")
    with np.errstate(divide="ignore"):
        of_longer, of_shorter = ((then - now) / then / step)[order], ((then - now) / now / step)[order]
    turn = 0
    while (wins := of_longer[turn + 1 :] > of_shorter[turn]).any():
        turn += 1 + int(wins.argmax())
    return int(order[turn])
