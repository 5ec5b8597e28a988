"""What every allocator keeps to, as a class of pytest tests to subclass.

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

from sizewright.cluster import Allotment, Problem
from sizewright.cluster.allocators import Allocator
from sizewright.errors import InputError
from sizewright.testing.problems import best_of, problem_of, random_problem

ROUNDING = 1e-9
LOADS = (0.5, 1.5, 3.0, 20.0)


class AllocatorContract:
    """Subclass it, name the subclass Test…, and give the fixture `allocator`."""

    @pytest.fixture
    def allocator(self) -> Allocator:
        """The allocator under test."""
        raise NotImplementedError("give a fixture `allocator`")

    @pytest.fixture
    def resources(self) -> int:
        """How many resources it can divide at most; override it for an allocator of a single one."""
        return 3

    def test_it_says_what_it_is(self, allocator: Allocator) -> None:
        """A name, by which it can be registered."""
        assert isinstance(allocator, Allocator), "subclass sizewright.cluster.allocators.Allocator"
        assert isinstance(allocator.name, str), "an allocator needs a name"
        assert allocator.name, "an allocator needs a name"

    def test_every_answer_is_feasible(self, allocator: Allocator, resources: int) -> None:
        """One offered column for each job, within the capacity; jobs that may not be put off are not, if all fit."""
        for problem in _problems(resources, seeds=40, most_jobs=12):
            answer = allocator(problem, 1.0)
            assert answer.policy == allocator.name
            assert answer.choice.shape == (len(problem.jobs),)
            assert problem.fits(answer.choice)
            offered = problem.offered[np.arange(len(problem.jobs)), answer.choice]
            assert set(np.flatnonzero(~offered)) <= set(answer.released), "columns were given that are not offered"
            if answer.released:
                assert not problem.fits(problem.floor), "what must stay fits, and some was released"

    def test_it_is_worth_what_it_says_and_nothing_exceeds_its_bound(self, allocator: Allocator, resources: int) -> None:
        """By the policy's own count, against all choices that fit; a policy without a bound proves nothing."""
        for problem in _problems(resources, seeds=20, most_jobs=4):
            answer = allocator(problem, 1.0)
            assert answer.worth.shape == problem.values.shape
            assert answer.value == pytest.approx(answer.total(answer.choice))
            if answer.bound is not None and not answer.released:
                best = best_of(_counted(problem, answer))
                assert answer.bound >= best - ROUNDING * abs(best)
                assert answer.value <= best + ROUNDING * abs(best)

    def test_nothing_to_give_is_nothing_given(self, allocator: Allocator) -> None:
        """No capacity; and no jobs."""
        problem = random_problem(3, 4, 3, facts=True)
        empty = problem_of(problem.needs[:, 1:], problem.values[:, 1:], [0.0], facts=True)
        assert not allocator(empty).choice.any()
        nobody = problem_of(np.zeros((0, 3)), np.zeros((0, 3)), [4.0], facts=True)
        assert allocator(nobody).choice.shape == (0,)

    def test_a_time_limit_of_ten_milliseconds_is_no_excuse(self, allocator: Allocator, resources: int) -> None:
        """Something is given, and it fits."""
        problem = random_problem(5, 60, 8, resources, facts=True)
        answer = allocator(problem, 0.01)
        assert problem.fits(answer.choice)
        assert answer.choice.any()

    def test_the_same_problem_has_the_same_answer(self, allocator: Allocator, resources: int) -> None:
        """Asked again, and asked of a copy, as the simulator makes one for each run; the problem stays as it is."""
        problem = random_problem(7, 8, 4, resources, facts=True, current=[0, 1, 2, 3, 4, 0, 1, 2])
        before = pickle.dumps(problem)
        told = allocator(problem).choice
        assert np.array_equal(allocator(problem).choice, told)
        assert np.array_equal(pickle.loads(pickle.dumps(allocator))(problem).choice, told)
        assert np.array_equal(allocator(pickle.loads(before)).choice, told), "the problem was changed"

    def test_it_says_what_it_goes_by(self, allocator: Allocator) -> None:
        """Of values alone it makes an answer if it is `by_value`; else it may say what it lacks, in one sentence."""
        problem = random_problem(1)
        try:
            answer = allocator(problem)
        except InputError:
            assert not allocator.by_value, "by_value says that it needs no facts"
        else:
            assert problem.fits(answer.choice)


def _problems(resources: int, seeds: int, most_jobs: int) -> Iterator[Problem]:
    """Some of their jobs run, and some of these may not be put off."""
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        jobs, columns = int(rng.integers(1, most_jobs + 1)), int(rng.integers(1, 6))
        current, stay = rng.integers(0, columns + 1, jobs), bool(rng.integers(2))
        yield random_problem(
            seed, jobs, columns, int(rng.integers(1, resources + 1)), LOADS[seed % len(LOADS)], facts=True,
            current=current, price=0.1, stays=(current > 0) & stay,
        )  # fmt: skip


def _counted(problem: Problem, answer: Allotment) -> Problem:
    """The problem with the worth that the policy counts."""
    worth = np.where(np.isfinite(answer.worth), answer.worth, 0.0)
    return replace(problem, values=worth, change_price=np.zeros(len(problem.jobs)), offered=np.isfinite(answer.worth))
