"""What every allocator is: a function of the problem, alike in simulation and in production."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

import numpy as np

from sizewright.cluster.allocators._highs import smallest
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import ROUNDING, Floats, Ints, Problem
from sizewright.errors import InputError, SizewrightError

_REMEDY = "Hold it against sizewright.testing.AllocatorContract, or take another policy."

FLOOR_S = 0.5
"""Seconds for the search for a floor that fits, beside any time limit; it is rarely needed."""


class Allocator:
    """Chooses one column for each job; subclasses say how in `choose`, which is handed problems whose floor fits."""

    name: ClassVar[str]
    origin: ClassVar[str] = ""
    """Where it was published."""
    by_value: ClassVar[bool] = False
    """Whether it goes by whatever values a problem without facts has."""

    def __call__(self, problem: Problem, time_limit_s: float = 10.0) -> Allotment:
        """An allotment within the capacity, whatever the time limit: it ends the search for better ones, and the first
        takes its time, about two seconds for 100,000 jobs.

        Raises InputError where the policy goes by facts that the problem lacks, fails, or gives what there is not.
        """
        started = time.perf_counter()
        if not len(problem.jobs):
            return chosen(problem, self.name, np.zeros(0, dtype=np.intp), bound=0.0, prices=np.zeros(problem.shape[2]))
        problem, released = _release(_without_giants(problem))
        answer = self._chosen(problem, started + time_limit_s)
        return replace(answer, released=released, seconds=time.perf_counter() - started)

    def choose(self, problem: Problem, until: float) -> Allotment:
        """An allotment within the capacity of a problem whose floor fits, to be done by `until`, seconds of
        `time.perf_counter`."""
        raise NotImplementedError

    def _chosen(self, problem: Problem, until: float) -> Allotment:
        """What `choose` answers, checked; whatever another package's raises is one sentence."""
        try:
            answer = self.choose(problem, until)
            stray = not problem.offered[np.arange(len(problem.jobs)), answer.choice].all()
        except SizewrightError:
            raise
        except Exception as error:
            raise InputError(f"The policy {self.name} failed: {type(error).__name__}: {error}.", _REMEDY) from error
        if stray or not problem.fits(answer.choice):
            raise InputError(f"The policy {self.name} gives more than there is, or what is not offered.", _REMEDY)
        return answer


def facts_of(problem: Problem, policy: str) -> Facts:
    """Raises InputError where there are none."""
    if problem.facts is None:
        raise InputError(
            f"{policy} goes by speeds, work left and arrivals of the jobs, which this problem does not tell.",
            "Give them, or take a policy that goes by values: lagrangian, mip, hull.",
        )
    return problem.facts


def valued(problem: Problem, values: Floats) -> Problem:
    """The same problem, with a policy's own values (J, K), which count what a change costs."""
    return replace(problem, values=values, change_price=np.zeros(len(values)))


def normal(problem: Problem) -> tuple[Problem, float]:
    """The same problem with values over the greatest that is offered, and that: solvers have absolute tolerances."""
    worth = np.abs(problem.worth[problem.offered])
    unit = float(worth.max(initial=0.0)) or 1.0
    return replace(problem, values=problem.values / unit, change_price=problem.change_price / unit), unit


def in_units(answer: Allotment, problem: Problem, unit: float) -> Allotment:
    """An answer to the normal problem, told of the problem itself."""
    bound = None if answer.bound is None else answer.bound * unit
    prices = None if answer.prices is None else answer.prices * unit
    return replace(answer, value=problem.total(answer.choice), worth=problem.worth, bound=bound, prices=prices)


def by_arrival(problem: Problem) -> Ints:
    """(J,): jobs, the earliest first; as they are listed where nothing is known of their arrivals."""
    if problem.facts is None:
        return np.arange(len(problem.current))
    return np.asarray(np.argsort(problem.facts.arrived_s, kind="stable"))


def _without_giants(problem: Problem) -> Problem:
    """No candidates that alone exceed a capacity."""
    alone = np.asarray((problem.needs <= problem.capacity * (1 + ROUNDING)).all(axis=2))
    return problem if alone[problem.offered].all() else replace(problem, offered=problem.offered & alone)


def _release(problem: Problem) -> tuple[Problem, tuple[int, ...]]:
    """Jobs that may not be put off are where nothing of theirs fits at all, and, the latest first, where what all of
    them are left with does not fit, and nothing is found that does."""
    lost = np.asarray(~problem.offered.any(axis=1))
    if problem.fits(problem.floor) and not lost.any():
        return problem, ()
    found = smallest(problem, FLOOR_S)
    if problem.fits(found):
        problem = replace(problem, fallback=found)
    used = problem.used(problem.floor)
    for job in by_arrival(problem)[::-1]:
        over = np.asarray(used > problem.capacity * (1 + ROUNDING))
        if not over.any():
            break
        need = problem.needs[job, problem.floor[job]]
        if (need[over] > 0).any():
            used, lost[job] = used - need, True
    offered, values = problem.offered.copy(), problem.values.copy()
    offered[lost, 0] = True
    values[lost, 0] = np.where(np.isfinite(values[lost, 0]), values[lost, 0], 0.0)
    return replace(problem, offered=offered, values=values), tuple(int(job) for job in np.flatnonzero(lost))
