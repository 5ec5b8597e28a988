"""Policies with several kinds of resources: none stays idle while a job waits, and no decision is undone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.cluster.allocators import Allocator, get_allocator
from sizewright.cluster.allocators.registry import ALLOCATORS
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.scheduler_state import units_of
from sizewright.cluster.problem.solution import Solution
from sizewright.errors import InputError
from sizewright.testing.problems import problem_of, random_kinds_problem, random_problem, waiting_with_room

BY_VALUE = [name for name in sorted(ALLOCATORS) if get_allocator(name).by_value]
GROWING = ("sia",)
"""Policies that may double a job at each decision, so that the next one changes more."""


def two_kinds(counts: tuple[int, int], speeds: tuple[float, float], jobs: int) -> Problem:
    """Return jobs that can each have one GPU of kind a or one of kind b."""
    needs = np.tile(np.eye(2), (jobs, 1, 1))
    problem = problem_of(needs, np.tile(speeds, (jobs, 1)), counts, scheduler_state=True)
    return replace(problem, resources=["gpu:a", "gpu:b"])


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
@pytest.mark.parametrize(("counts", "jobs"), [((1, 1), 2), ((3, 1), 5), ((1, 3), 3), ((0, 2), 2), ((2, 2), 3)])
def test_every_gpu_is_used_by_jobs_that_can_use_all(name: str, counts: tuple[int, int], jobs: int) -> None:
    for speeds in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0)):
        answer = get_allocator(name)(two_kinds(counts, speeds, jobs))
        assert int((answer.choice > 0).sum()) == min(sum(counts), jobs)


@pytest.mark.parametrize("name", BY_VALUE)
def test_job_that_gains_most_gets_the_fast_kind(name: str) -> None:
    needs = np.tile(np.eye(2), (2, 1, 1))
    for values in ([[1.0, 1.2], [1.0, 4.0]], [[1.0, 4.0], [1.0, 1.2]]):
        answer = get_allocator(name)(replace(problem_of(needs, values, [1, 1]), resources=["gpu:a", "gpu:b"]))
        assert answer.value == pytest.approx(5.0)


def test_request_is_served_by_the_same_number_of_gpus_of_another_kind() -> None:
    needs = np.array([[[1, 0], [4, 0], [0, 1], [0, 4], [0, 8]]] * 2, float)
    problem = problem_of(needs, [[1.0, 3.0, 2.0, 6.0, 9.0]] * 2, [4, 8], scheduler_state=True)
    problem = replace(problem, resources=["gpu:a", "gpu:b"])
    assert problem.scheduler_state is not None
    problem = replace(problem, scheduler_state=replace(problem.scheduler_state, requested=np.array([2, 2])))
    for name in ("fifo", "sjf"):
        assert sorted(get_allocator(name)(problem).choice) == [2, 4]


def test_attained_service_counts_gpus_of_all_kinds_or_else_cores() -> None:
    needs = np.array([[8.0, 2e9, 2, 0], [8.0, 2e9, 0, 3], [8.0, 2e9, 1, 1], [8.0, 2e9, 0, 0], [0, 2e9, 0, 0]])
    assert list(units_of(needs, ["cpu", "memory_bytes", "gpu:a", "gpu:b"])) == [2, 3, 2, 8, 2e9]
    assert list(units_of(needs[:, :2], ["gpu", "cpu"])) == [8, 8, 8, 8, 2e9]


def test_policy_of_one_kind_refuses_several_with_one_sentence() -> None:
    class OneKind(Allocator):
        name = "one-kind"
        one_kind = True

        def choose(self, problem: Problem, until: float) -> Solution:
            return get_allocator("fifo").choose(problem, until)

    with pytest.raises(InputError, match="one-kind is made for one kind of resource, and job-0 has"):
        OneKind()(two_kinds((1, 1), (1.0, 2.0), 2))
    assert OneKind()(random_problem(1, resources=3)).choice.shape == (5,)


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_job_waits_beside_what_it_could_use(name: str, seed: int) -> None:
    problem = random_kinds_problem(seed)
    allocator = get_allocator(name)
    assert not len(waiting_with_room(problem, allocator(problem, 5.0), allocator))


@pytest.mark.parametrize("name", sorted(set(ALLOCATORS) - set(GROWING)))
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), several_kinds=st.booleans())
def test_repeated_decision_changes_nothing(name: str, seed: int, several_kinds: bool) -> None:
    rng = np.random.default_rng(seed)
    problem = (
        random_kinds_problem(seed) if several_kinds
        else random_problem(seed, 6, 4, 2, current=rng.integers(0, 5, 6), price=0.1, scheduler_state=True)
    )  # fmt: skip
    answer = get_allocator(name)(problem, 5.0)
    again = get_allocator(name)(replace(problem, current=answer.choice), 5.0)
    assert list(again.choice) == list(answer.choice)


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_change_is_undone_while_little_is_trained(name: str, seed: int) -> None:
    """Ten decisions, 10 s apart: no job goes back to what it had before, and forth again."""
    problem = random_kinds_problem(seed)
    history = [problem.current]
    for _ in range(10):
        choice = get_allocator(name)(problem, 5.0).choice
        history.append(choice)
        state = problem.scheduler_state
        assert state is not None
        speed = state.speed[np.arange(len(choice)), choice]
        remaining = np.maximum(state.remaining - 10 * speed, 0.05 * state.work)
        later = replace(state, now_s=state.now_s + 10, remaining=remaining)
        problem = replace(problem, current=choice, scheduler_state=later)
    changes = np.diff(np.stack(history[1:]), axis=0) != 0
    assert changes.sum(axis=0).max(initial=0) <= 3
