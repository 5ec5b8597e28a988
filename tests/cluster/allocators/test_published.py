"""Each published policy on a problem that is small enough to be solved with a pencil."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.cluster.allocators.registry import get_allocator
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState


def problem_of(
    sizes: object, capacity: float, *, speeds: object = None, left: object = 1.0, work: object = None,
    current: object = 0, requested: object = 1, attained: object = 0.0, started: object = np.nan, window_s: float = 1.0,
    age_s: float = 0.0,
) -> Problem:  # fmt: skip
    """Jobs of one resource that all have the same sizes; speeds are the sizes, if not told."""
    needs = np.concatenate([[0.0], np.asarray(sizes, float)])
    J = max(np.size(left), np.size(current), np.size(attained))
    speed = needs if speeds is None else np.concatenate([[0.0], np.asarray(speeds, float)])

    def each(told: object, kind: type = float) -> np.ndarray:
        return np.broadcast_to(np.asarray(told, kind), J).copy()

    facts = SchedulerState(
        now_s=1000.0, window_s=window_s, speed=np.tile(speed, (J, 1)), remaining=each(left),
        work=each(left if work is None else work), arrived_s=np.arange(J, dtype=float),
        started_s=each(1000.0 - age_s if age_s else started), attained=each(attained), restart_s=np.zeros(J),
        requested=each(requested, int),
    )  # fmt: skip
    tables = np.tile(needs[:, None], (J, 1, 1))
    return Problem(
        [f"job-{j}" for j in range(J)], ["cpu"], np.array([capacity]), tables, np.tile(speed, (J, 1)),
        np.ones(tables.shape[:2], bool), each(current, int), np.zeros(J), facts,
    )  # fmt: skip


def given(policy: str, problem: Problem) -> list[int]:
    return [int(k) for k in get_allocator(policy)(problem).choice]


def test_first_come_first_served_lets_nobody_pass() -> None:
    assert given("fifo", problem_of([2, 4], 5, left=[1, 1, 1], requested=[1, 2, 1])) == [1, 0, 0]


def test_shortest_first_lets_pass_what_fits() -> None:
    assert given("sjf", problem_of([2, 4], 5, left=[8, 16, 2], requested=[1, 2, 1])) == [1, 0, 1]


def test_the_greedy_doubles_in_rounds() -> None:
    assert given("doubling", problem_of([1, 2, 4], 7, left=[1, 1])) == [3, 2]
    assert given("doubling", problem_of([1, 2, 4], 2, left=[1, 1, 1])) == [1, 1, 0]


@pytest.mark.parametrize("policy", ["aryl", "slope", "hull"])
def test_base_demand_is_served_the_soonest_done_first(policy: str) -> None:
    assert given(policy, problem_of([1, 2], 2, left=[30, 10, 20])) == [0, 1, 1]


@pytest.mark.parametrize("policy", ["aryl", "slope", "hull"])
def test_the_rest_goes_where_it_saves_most_time(policy: str) -> None:
    assert given(policy, problem_of([1, 2], 3, left=[10, 100])) == [1, 2]  # 5 s are saved, or 50 s


def test_the_knapsack_is_exact_where_the_greedy_is_not() -> None:
    problem = problem_of([1, 2, 4], 5, speeds=[1, 1.6, 8], left=[100, 100])
    assert given("aryl", problem) in ([1, 3], [3, 1])  # 87.5 s are saved, and with 2 cores 37.5 s
    assert given("slope", problem) == [2, 2]  # the step to 2 cores first, for both


def test_nearly_done_jobs_weigh_more() -> None:
    assert given("weighted-greedy", problem_of([1, 2], 3, speeds=[1, 1.5], left=[100, 10])) == [1, 2]


def test_progress_is_a_share_of_each_jobs_own_work() -> None:
    assert given("progress-mip", problem_of([1, 2], 1, left=[100, 10], window_s=5.0)) == [0, 1]
    assert given("progress-mip", problem_of([1, 2], 1, left=[100, 2], work=[100, 1000], window_s=5.0)) == [1, 0]


def test_compaction_begins_when_more_than_ten_wait() -> None:
    def served(others: int) -> list[int]:
        attained = np.full(others + 1, 1e6)
        current = np.array([2] + [0] * others)
        started = np.arange(others + 1, dtype=float)
        return given(
            "elastic-tiresias",
            problem_of([1, 12], 12, current=current, attained=attained, started=started, requested=[2] + [1] * others),
        )

    assert served(10) == [2] + [0] * 10
    assert served(11) == [1] * 12


def test_jobs_of_little_service_are_in_the_top_queue() -> None:
    problem = problem_of([1], 1, attained=[1e6, 10.0], started=[0.0, 500.0])
    assert given("elastic-tiresias", problem) == [0, 1]


def test_goodput_counts_by_its_root_and_waiting_by_its_penalty() -> None:
    """Both with one core: 2 × (1.1 − 1) = 0.2; one with two: 1.1 − g^−0.5, 0.187 for g = 1.2 and 0.393 for g = 2."""
    assert given("sia", problem_of([1, 2], 2, speeds=[1, 1.2], left=[1, 1])) == [1, 1]
    assert sorted(given("sia", problem_of([1, 2], 2, speeds=[1, 2], left=[1, 1]))) == [0, 2]


def test_a_restart_must_be_worth_the_age_that_it_costs() -> None:
    young, old = (problem_of([1, 2], 2, speeds=[1, 1.2], left=[1], current=[1], age_s=age) for age in (10.0, 10000.0))
    for problem, kept in ((young, 1), (old, 2)):
        assert problem.facts is not None
        problem.facts.restart_s[:] = 30.0
        assert given("sia", problem) == [kept]
