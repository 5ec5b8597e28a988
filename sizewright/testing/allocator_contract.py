"""The contract of every allocator, as a class of pytest tests to subclass.

from sizewright.testing import AllocatorContract

class TestMine(AllocatorContract):
    @pytest.fixture
    def allocator(self):
        return MyAllocator()
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from sizewright.cluster import Problem, Solution
from sizewright.cluster.allocators import Allocator
from sizewright.errors import InputError
from sizewright.testing.problems import best_of, problem_of, random_problem

ROUNDING = 1e-9
LOADS = (0.5, 1.5, 3.0, 20.0)


class AllocatorContract:
    """Tests of an allocator. Subclass it, name the subclass Test…, and define the fixture `allocator`."""

    @pytest.fixture
    def allocator(self) -> Allocator:
        """Return the allocator under test."""
        raise NotImplementedError("define the fixture `allocator`")

    @pytest.fixture
    def resources(self) -> int:
        """Return the maximum number of resources. Override it for an allocator of a single resource."""
        return 3

    def test_allocator_has_base_class_and_name(self, allocator: Allocator) -> None:
        """It is an `Allocator` and has a name."""
        assert isinstance(allocator, Allocator), "subclass sizewright.cluster.allocators.Allocator"
        assert isinstance(allocator.name, str), "an allocator needs a name"
        assert allocator.name, "an allocator needs a name"

    def test_every_choice_is_feasible(self, allocator: Allocator, resources: int) -> None:
        """Each job gets one offered column, within the capacity; jobs that must run do so if all of them fit."""
        for problem in _problems(resources, seeds=40, max_jobs=12):
            answer = allocator(problem, 1.0)
            assert answer.policy == allocator.name
            assert answer.choice.shape == (len(problem.jobs),)
            assert problem.fits(answer.choice)
            offered = problem.offered[np.arange(len(problem.jobs)), answer.choice]
            assert set(np.flatnonzero(~offered)) <= set(answer.released), (
                "the answer contains columns that are not offered"
            )
            if answer.released:
                assert not problem.fits(problem.floor), "jobs that must run were released although all of them fit"

    def test_value_is_total_utility_within_the_bound(self, allocator: Allocator, resources: int) -> None:
        """The value is the total utility, and no choice that fits exceeds the bound if there is one."""
        for problem in _problems(resources, seeds=20, max_jobs=4):
            answer = allocator(problem, 1.0)
            assert answer.utilities.shape == problem.values.shape
            assert answer.value == pytest.approx(answer.total(answer.choice))
            if answer.bound is not None and not answer.released:
                best = best_of(_with_utilities(problem, answer))
                assert answer.bound >= best - ROUNDING * abs(best)
                assert answer.value <= best + ROUNDING * abs(best)

    def test_nothing_is_allocated_without_capacity_or_jobs(self, allocator: Allocator) -> None:
        """Without capacity no job gets anything, and a problem without jobs has an empty choice."""
        problem = random_problem(3, 4, 3, scheduler_state=True)
        empty = problem_of(problem.needs[:, 1:], problem.values[:, 1:], [0.0], scheduler_state=True)
        assert not allocator(empty).choice.any()
        nobody = problem_of(np.zeros((0, 3)), np.zeros((0, 3)), [4.0], scheduler_state=True)
        assert allocator(nobody).choice.shape == (0,)

    def test_short_time_limit_still_gives_a_choice(self, allocator: Allocator, resources: int) -> None:
        """A choice within the capacity is found, in which some jobs get something."""
        problem = random_problem(5, 60, 8, resources, scheduler_state=True)
        answer = allocator(problem, 0.01)
        assert problem.fits(answer.choice)
        assert answer.choice.any()

    def test_same_problem_gives_same_choice(self, allocator: Allocator, resources: int) -> None:
        """Repeated calls and copies of the allocator give the same choice, and the problem does not change."""
        problem = random_problem(7, 8, 4, resources, scheduler_state=True, current=[0, 1, 2, 3, 4, 0, 1, 2])
        before = pickle.dumps(problem)
        expected = allocator(problem).choice
        assert np.array_equal(allocator(problem).choice, expected)
        assert np.array_equal(pickle.loads(pickle.dumps(allocator))(problem).choice, expected)
        assert np.array_equal(allocator(pickle.loads(before)).choice, expected), "the problem was changed"

    def test_no_kind_is_idle_while_a_job_waits(self, allocator: Allocator) -> None:
        """Where each job can have one unit of any kind, all units are in use or all jobs are served.

        An allocator that is made for one kind (`one_kind`) refuses such a problem with InputError.
        """
        for seed in range(20):
            rng = np.random.default_rng(seed)
            jobs, kinds = int(rng.integers(2, 8)), int(rng.integers(2, 4))
            needs = np.tile(np.eye(kinds), (jobs, 1, 1))
            units = rng.integers(0, 4, kinds)
            problem = problem_of(needs, rng.uniform(1, 4, (jobs, kinds)), units, scheduler_state=True)
            if allocator.one_kind:
                if (units > 0).sum() > 1:
                    with pytest.raises(InputError, match="one kind"):
                        allocator(problem, 1.0)
                continue
            served = int((allocator(problem, 1.0).choice > 0).sum())
            assert served == min(jobs, int(units.sum())), f"{served} of {jobs} jobs are served by {units} units"

    def test_no_change_is_undone_by_the_next_decision(self, allocator: Allocator, resources: int) -> None:
        """Asked again with what it gave, and nothing else changed, it gives no job back what this one had before."""
        for problem in _problems(resources, seeds=20, max_jobs=8):
            answer = allocator(problem, 1.0)
            if answer.released:
                continue
            again = allocator(replace(problem, current=answer.choice), 1.0)
            undone = (again.choice == problem.current) & (answer.choice != problem.current)
            assert not undone.any(), f"jobs {np.flatnonzero(undone)} change and change back"

    def test_by_value_allocator_needs_no_scheduler_state(self, allocator: Allocator) -> None:
        """It solves a problem without a scheduler state if it is `by_value`; otherwise it may raise InputError."""
        problem = random_problem(1)
        try:
            answer = allocator(problem)
        except InputError:
            assert not allocator.by_value, "by_value is True, so it must not need a scheduler state"
        else:
            assert problem.fits(answer.choice)


def _problems(resources: int, seeds: int, max_jobs: int) -> Iterator[Problem]:
    """Yield problems in which some jobs run, of which some must not be suspended."""
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        jobs, columns = int(rng.integers(1, max_jobs + 1)), int(rng.integers(1, 6))
        current = rng.integers(0, columns + 1, jobs)
        must_run = bool(rng.integers(2))
        yield random_problem(
            seed,
            jobs,
            columns,
            int(rng.integers(1, resources + 1)),
            LOADS[seed % len(LOADS)],
            scheduler_state=True,
            current=current,
            price=0.1,
            stays=(current > 0) & must_run,
        )


def _with_utilities(problem: Problem, answer: Solution) -> Problem:
    """Return the problem with the policy's utilities as values."""
    offered = np.isfinite(answer.utilities)
    values = np.where(offered, answer.utilities, 0.0)
    return replace(problem, values=values, change_price=np.zeros(len(problem.jobs)), offered=offered)
