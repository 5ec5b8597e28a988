"""The base class of allocators: functions of the problem, used alike in simulation and in production."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

import numpy as np

from sizewright.cluster.allocators._highs import smallest_choice
from sizewright.cluster.problem.problem import ROUNDING, Floats, Ints, Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState
from sizewright.cluster.problem.solution import Solution, chosen
from sizewright.errors import InputError, SizewrightError

_REMEDY = "Test it with sizewright.testing.AllocatorContract, or choose another policy."

FLOOR_LIMIT_S = 0.5
"""Time limit of the search for a floor that fits, in addition to any other limit; it is rarely needed."""


class Allocator:
    """Chooses one column for each job. Subclasses implement `choose`, which gets problems whose floor fits."""

    name: str
    by_value: ClassVar[bool] = False
    """True if it accepts a problem without a scheduler state and maximises its values."""
    rigid: ClassVar[bool] = False
    """True if a job gets what it requests, of any kind, or nothing."""
    in_order: ClassVar[bool] = False
    """True if the first job that does not fit lets those behind it wait."""
    one_kind: ClassVar[bool] = False
    """True if it is made for candidates of one kind (`Problem.kinds`): it refuses a job that could use several."""

    @classmethod
    def of_settings(cls, text: str) -> Allocator:
        """Return the policy with settings, which follow its name and a colon. Raises InputError if it has none."""
        raise InputError(f"The policy {cls.name} has no settings, got {text!r}.", f"Write {cls.name} alone.")

    def __call__(self, problem: Problem, time_limit_s: float = 10.0) -> Solution:
        """Return a solution within the capacity.

        `time_limit_s` ends the search for better solutions. The first one takes its own time, about two seconds for
        100,000 jobs.

        Raises InputError if the policy needs a scheduler state that the problem lacks, if it is made for one kind of
        resource and a job has candidates of several, if it fails, or if its solution exceeds the capacity.
        """
        started = time.perf_counter()
        if not len(problem.jobs):
            return chosen(problem, self.name, np.zeros(0, dtype=np.intp), bound=0.0, prices=np.zeros(problem.shape[2]))
        problem, released = _release(_without_oversized(problem))
        if self.one_kind and problem.has_several_kinds.any():
            job = problem.jobs[int(problem.has_several_kinds.argmax())]
            raise InputError(
                f"The policy {self.name} is made for one kind of resource, and {job} has candidates of several kinds.",
                "Offer this job candidates of one kind of GPU, or choose another policy, such as default.",
            )
        answer = self._choose_checked(problem, started + time_limit_s)
        return replace(answer, released=released, seconds=time.perf_counter() - started)

    def choose(self, problem: Problem, until: float) -> Solution:
        """Return a solution within the capacity of a problem whose floor fits, by `until` (`time.perf_counter`)."""
        raise NotImplementedError

    def _choose_checked(self, problem: Problem, until: float) -> Solution:
        """Return the solution of `choose`; raise InputError if it is invalid or if another package's code fails."""
        try:
            answer = self.choose(problem, until)
            offered = problem.offered[np.arange(len(problem.jobs)), answer.choice].all()
        except SizewrightError:
            raise
        except Exception as error:
            raise InputError(f"The policy {self.name} failed: {type(error).__name__}: {error}.", _REMEDY) from error
        if not offered or not problem.fits(answer.choice):
            message = f"The policy {self.name} exceeds the capacity or chooses a column that is not offered."
            raise InputError(message, _REMEDY)
        return answer


def scheduler_state_of(problem: Problem, policy: str) -> SchedulerState:
    """Return the scheduler state of the problem; raise InputError if it has none."""
    if problem.scheduler_state is None:
        raise InputError(
            f"{policy} needs the speeds, remaining work and arrivals of the jobs, which this problem does not have.",
            "Give the problem a `scheduler_state`, or choose a policy that maximises values: lagrangian, mip, hull.",
        )
    return problem.scheduler_state


def valued(problem: Problem, values: Floats) -> Problem:
    """Return the problem with a policy's own values (J, K), which include the cost of a change."""
    return problem.replaced(values=values, change_price=np.zeros(len(values)))


def normalise(problem: Problem) -> tuple[Problem, float]:
    """Return the problem with values divided by the greatest one, and that; solvers have absolute tolerances."""
    utilities = np.abs(problem.utilities[problem.offered])
    unit = float(utilities.max(initial=0.0)) or 1.0
    return replace(problem, values=problem.values / unit, change_price=problem.change_price / unit), unit


def denormalise(answer: Solution, problem: Problem, unit: float) -> Solution:
    """Return the solution of `problem` that corresponds to a solution of the normalised problem."""
    bound = None if answer.bound is None else answer.bound * unit
    prices = None if answer.prices is None else answer.prices * unit
    return replace(answer, value=problem.total(answer.choice), utilities=problem.utilities, bound=bound, prices=prices)


def by_arrival(problem: Problem) -> Ints:
    """Return the jobs (J,) in order of arrival, or in their order in the problem if it has no scheduler state."""
    if problem.scheduler_state is None:
        return np.arange(len(problem.current))
    return np.asarray(np.argsort(problem.scheduler_state.arrived_s, kind="stable"))


def _without_oversized(problem: Problem) -> Problem:
    """Return the problem without candidates that exceed a capacity on their own."""
    fits_alone = np.asarray((problem.needs <= problem.capacity * (1 + ROUNDING)).all(axis=2))
    if fits_alone[problem.offered].all():
        return problem
    return replace(problem, offered=problem.offered & fits_alone)


def _release(problem: Problem) -> tuple[Problem, tuple[int, ...]]:
    """Let jobs wait that must run but cannot, and return the problem and these jobs.

    Jobs without any candidate are released. If the floor does not fit and no other choice of small candidates does,
    jobs are released as well, the latest to arrive first.
    """
    released = np.asarray(~problem.offered.any(axis=1))
    if problem.fits(problem.floor) and not released.any():
        return problem, ()
    smallest = smallest_choice(problem, FLOOR_LIMIT_S)
    if problem.fits(smallest):
        problem = replace(problem, fallback=smallest)
    used = problem.used(problem.floor)
    for job in by_arrival(problem)[::-1]:
        exceeded = np.asarray(used > problem.capacity * (1 + ROUNDING))
        if not exceeded.any():
            break
        need = problem.needs[job, problem.floor[job]]
        if (need[exceeded] > 0).any():
            used = used - need
            released[job] = True
    offered, values = problem.offered.copy(), problem.values.copy()
    offered[released, 0] = True
    values[released, 0] = np.where(np.isfinite(values[released, 0]), values[released, 0], 0.0)
    return replace(problem, offered=offered, values=values), tuple(int(job) for job in np.flatnonzero(released))
