"""Each published policy solves a problem that is small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.cluster.allocators.registry import get_allocator
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.scheduler_state import SchedulerState


def problem_of(
    sizes: object, capacity: float, *, speeds: object = None, remaining: object = 1.0, work: object = None,
    current: object = 0, requested: object = 1, attained: object = 0.0, started: object = np.nan, window_s: float = 1.0,
    age_s: float = 0.0,
) -> Problem:  # fmt: skip
    """Return jobs of one resource with the same sizes; speeds default to the sizes."""
    needs = np.concatenate([[0.0], np.asarray(sizes, float)])
    J = max(np.size(remaining), np.size(current), np.size(attained))
    speed = needs if speeds is None else np.concatenate([[0.0], np.asarray(speeds, float)])

    def each(values: object, kind: type = float) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, kind), J).copy()

    state = SchedulerState(
        now_s=1000.0, window_s=window_s, speed=np.tile(speed, (J, 1)), remaining=each(remaining),
        work=each(remaining if work is None else work), arrived_s=np.arange(J, dtype=float),
        started_s=each(1000.0 - age_s if age_s else started), attained=each(attained), restart_s=np.zeros(J),
        requested=each(requested, int),
    )  # fmt: skip
    tables = np.tile(needs[:, None], (J, 1, 1))
    return Problem(
        [f"job-{j}" for j in range(J)], ["cpu"], np.array([capacity]), tables, np.tile(speed, (J, 1)),
        np.ones(tables.shape[:2], bool), each(current, int), np.zeros(J), state,
    )  # fmt: skip


def choices_of(policy: str, problem: Problem) -> list[int]:
    return [int(k) for k in get_allocator(policy)(problem).choice]


def test_fifo_lets_no_later_job_pass() -> None:
    assert choices_of("fifo", problem_of([2, 4], 5, remaining=[1, 1, 1], requested=[1, 2, 1])) == [1, 0, 0]


def test_shortest_job_first_serves_a_later_job_that_fits() -> None:
    assert choices_of("sjf", problem_of([2, 4], 5, remaining=[8, 16, 2], requested=[1, 2, 1])) == [1, 0, 1]


def test_doubling_greedy_doubles_in_rounds() -> None:
    assert choices_of("doubling", problem_of([1, 2, 4], 7, remaining=[1, 1])) == [3, 2]
    assert choices_of("doubling", problem_of([1, 2, 4], 2, remaining=[1, 1, 1])) == [1, 1, 0]


@pytest.mark.parametrize("policy", ["aryl", "slope", "hull"])
def test_base_demand_is_served_by_shortest_remaining_time(policy: str) -> None:
    assert choices_of(policy, problem_of([1, 2], 2, remaining=[30, 10, 20])) == [0, 1, 1]


@pytest.mark.parametrize("policy", ["aryl", "slope", "hull"])
def test_remaining_capacity_goes_where_it_saves_most_time(policy: str) -> None:
    assert choices_of(policy, problem_of([1, 2], 3, remaining=[10, 100])) == [1, 2]  # 5 s are saved, or 50 s


def test_knapsack_is_exact_where_the_greedy_is_not() -> None:
    problem = problem_of([1, 2, 4], 5, speeds=[1, 1.6, 8], remaining=[100, 100])
    assert choices_of("aryl", problem) in ([1, 3], [3, 1])  # 87.5 s are saved, and with 2 cores 37.5 s
    assert choices_of("slope", problem) == [2, 2]  # the step to 2 cores first, for both


def test_weighted_greedy_prefers_nearly_finished_jobs() -> None:
    assert choices_of("weighted-greedy", problem_of([1, 2], 3, speeds=[1, 1.5], remaining=[100, 10])) == [1, 2]


def test_progress_is_relative_to_the_work_of_the_job() -> None:
    assert choices_of("progress-mip", problem_of([1, 2], 1, remaining=[100, 10], window_s=5.0)) == [0, 1]
    assert choices_of("progress-mip", problem_of([1, 2], 1, remaining=[100, 2], work=[100, 1000], window_s=5.0)) == [
        1,
        0,
    ]


def test_tiresias_compacts_when_more_than_ten_jobs_wait() -> None:
    def served(others: int) -> list[int]:
        attained = np.full(others + 1, 1e6)
        current = np.array([2] + [0] * others)
        started = np.arange(others + 1, dtype=float)
        return choices_of(
            "elastic-tiresias",
            problem_of([1, 12], 12, current=current, attained=attained, started=started, requested=[2] + [1] * others),
        )

    assert served(10) == [2] + [0] * 10
    assert served(11) == [1] * 12


def test_job_of_little_attained_service_is_in_the_top_queue() -> None:
    problem = problem_of([1], 1, attained=[1e6, 10.0], started=[0.0, 500.0])
    assert choices_of("elastic-tiresias", problem) == [0, 1]


def test_sia_minimises_the_root_of_goodput() -> None:
    """Both at 2 score 2 × 2^−0.5 = 1.41, one at 4 and one at 1 score 4^−0.5 + 1 = 1.5; so the jobs are equal."""
    assert choices_of("sia", problem_of([1, 2, 4], 5, remaining=[1, 1], current=[2, 2], age_s=1e9)) == [2, 2]


def test_sia_lets_no_job_wait_while_smallest_sizes_fit() -> None:
    """A second core would gain .29, and the first of the other job .1."""
    assert choices_of("sia", problem_of([1, 2], 2, remaining=[1, 1], current=[1, 0], age_s=1e9)) == [1, 1]


def test_sia_starts_jobs_with_the_smallest_size_and_at_most_doubles_running_ones() -> None:
    assert choices_of("sia", problem_of([1, 2, 4, 8], 16, remaining=[1, 1], current=[0, 2], age_s=1e9)) == [1, 3]
    assert choices_of("sia", problem_of([1, 2, 4, 8], 2, remaining=[1, 1])) == [1, 1]


def test_progress_gives_idle_capacity_to_a_job_that_ends_within_the_window() -> None:
    for window_s in (1.0, 100.0, 10_000.0):
        assert choices_of("progress-mip", problem_of([1, 2, 4], 8, remaining=[10, 20], window_s=window_s)) == [3, 3]


@pytest.mark.parametrize("policy", ["slope", "hull", "aryl", "weighted-greedy"])
def test_larger_size_stays_with_its_job_though_another_would_gain_a_little_more(policy: str) -> None:
    """Each job has one core, or two; which of two nearly equal jobs has two is not worth two restarts."""
    for remaining in ([100.0, 100.0], [100.0, 101.0], [101.0, 100.0]):
        problem = problem_of([1, 2], 3, speeds=[1, 2], remaining=remaining, current=[2, 1], window_s=50.0)
        assert problem.scheduler_state is not None
        problem.scheduler_state.restart_s[:] = 10.0
        assert choices_of(policy, problem) == [2, 1]


def test_sia_restarts_only_jobs_old_enough_to_pay_for_it() -> None:
    young, old = (
        problem_of([1, 2], 2, speeds=[1, 1.2], remaining=[1], current=[1], age_s=age) for age in (10.0, 10000.0)
    )
    for problem, expected in ((young, 1), (old, 2)):
        assert problem.scheduler_state is not None
        problem.scheduler_state.restart_s[:] = 30.0
        assert choices_of("sia", problem) == [expected]
