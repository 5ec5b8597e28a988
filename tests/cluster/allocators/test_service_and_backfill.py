"""Known answers of `tiresias`, `srsf` and `fifo-backfill`, also with several kinds of GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.cluster.allocators import get_allocator
from sizewright.cluster.allocators.fifo_backfill import FifoBackfill
from sizewright.cluster.allocators.tiresias import Tiresias
from sizewright.cluster.problem.problem import ROUNDING, Problem
from sizewright.errors import InputError
from sizewright.testing.problems import random_kinds_problem
from tests.cluster.allocators.test_published import choices_of, problem_of


def kinds_problem(counts: list[int], capacity: list[float], remaining: object, **state: object) -> Problem:
    """Return jobs that request so many GPUs of kind a, or take as many of kind b at half the speed."""
    problem = problem_of([1, 1], 1.0, remaining=remaining, **state)  # type: ignore[arg-type]
    needs = np.zeros((len(counts), 3, 2))
    needs[:, 1, 0] = needs[:, 2, 1] = counts
    speed = np.tile([0.0, 2.0, 1.0], (len(counts), 1))
    assert problem.scheduler_state is not None
    return replace(
        problem, resources=["gpu:a", "gpu:b"], capacity=np.array(capacity), needs=needs,
        scheduler_state=replace(problem.scheduler_state, speed=speed),
    )  # fmt: skip


def test_srsf_counts_the_remaining_time_times_the_size() -> None:
    problem = problem_of([1, 8], 8, speeds=[1, 1], remaining=[50, 10], requested=[1, 2])
    assert choices_of("srsf", problem) == [1, 0]  # 50 GPU-seconds are less than 80
    assert choices_of("sjf", problem) == [0, 2]


@pytest.mark.parametrize("policy", ["srsf", "tiresias", "fifo-backfill"])
def test_job_takes_the_same_size_of_another_kind_where_its_own_is_used_up(policy: str) -> None:
    assert choices_of(policy, kinds_problem([2, 2, 2], [2, 2], [10, 20, 30])) == [1, 2, 0]


def test_tiresias_serves_queue_after_queue_and_each_by_arrival() -> None:
    problem = problem_of([2], 4, attained=[8000.0, 3249.0, 3250.0, 0.0])
    assert choices_of("tiresias", problem) == [0, 1, 0, 1]
    assert choices_of("tiresias:10000", problem) == [1, 1, 0, 0]
    assert choices_of("tiresias:1h", replace(problem, capacity=np.array([6.0]))) == [0, 1, 1, 1]


def test_tiresias_lets_jobs_of_a_queue_run_on_and_puts_demoted_ones_behind_it() -> None:
    first = problem_of([2], 2, attained=[0.0, 4000.0, 4000.0], current=[0, 0, 1])
    assert first.scheduler_state is not None
    waiting = replace(first.scheduler_state, attained=np.array([9e9, 4000.0, 4000.0]))
    assert choices_of("tiresias", replace(first, scheduler_state=waiting)) == [0, 0, 1]  # it runs, and came later
    policy = Tiresias()
    assert list(policy(first).choice) == [1, 0, 0]
    assert first.scheduler_state is not None
    demoted = replace(first.scheduler_state, attained=np.array([4000.0, 4000.0, 4000.0]))
    again = replace(first, current=np.array([1, 0, 0]), scheduler_state=demoted)
    assert list(policy(again).choice) == [0, 0, 1]  # job 0 arrived first, and enters the second queue last


def test_tiresias_forgets_no_order_when_jobs_end() -> None:
    policy, many = Tiresias(), problem_of([1], 0.5, attained=np.full(6, 4000.0))
    policy(many)
    few = problem_of([1], 1, attained=[4000.0, 4000.0])
    assert few.scheduler_state is not None
    renamed = replace(
        few, jobs=["new", "job-5"], scheduler_state=replace(few.scheduler_state, arrived_s=np.array([0.0, 9.0]))
    )
    assert list(policy(renamed).choice) == [0, 1]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("tiresias:7200:3250", "must be above 0 and rise, got 7200, 3250"),
        ("tiresias:0", "must be above 0 and rise, got 0"),
        ("tiresias:soon", "thresholds 'soon' are not times"),
        ("tiresias:", "thresholds '' are not times"),
        ("sjf:5", "sjf has no settings"),
        ("lifo:5", "no policy 'lifo'"),
    ],
)
def test_invalid_settings_of_a_policy_are_explained(policy: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        get_allocator(policy)


def test_policies_with_settings_are_told_apart_by_their_names() -> None:
    assert [get_allocator(name).name for name in ("tiresias", "tiresias:3250:7200", "tiresias:1h:4h")] == [
        "tiresias", "tiresias", "tiresias:3600:14400",
    ]  # fmt: skip
    assert Tiresias(thresholds=(60,)).name == "tiresias:60"


def test_backfilled_job_ends_before_the_reservation_or_uses_what_it_leaves() -> None:
    """Three of the GPUs are free after 10 s; the second job needs four of them."""

    def served(capacity: float, third_s: float) -> list[int]:
        problem = problem_of(
            [1, 3, 4], capacity, speeds=[1, 1, 1], remaining=[10, 10, third_s], current=[2, 0, 0], requested=[2, 3, 1]
        )
        return choices_of("fifo-backfill", problem)

    assert served(4, 9) == [2, 0, 1]
    assert served(4, 10) == [2, 0, 1]
    assert served(4, 11) == [2, 0, 0]
    assert served(5, 11) == [2, 0, 1]  # one GPU is left beside the four
    assert served(7, 11) == [2, 3, 0]


def test_start_counts_in_the_estimated_end_of_a_backfilled_job() -> None:
    problem = problem_of([1, 3, 4], 4, speeds=[1, 1, 1], remaining=[10, 10, 9], current=[2, 0, 0], requested=[2, 3, 1])
    assert problem.scheduler_state is not None
    problem.scheduler_state.restart_s[:] = 2.0
    assert choices_of("fifo-backfill", problem) == [2, 0, 0]


def test_backfilling_never_stops_a_running_job() -> None:
    problem = problem_of([2], 2, remaining=[1, 1], current=[0, 1])
    assert (choices_of("fifo-backfill", problem), choices_of("fifo", problem)) == ([0, 1], [1, 0])


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60)
def test_later_jobs_do_not_delay_the_first_that_waits(seed: int) -> None:
    problem = random_kinds_problem(seed)
    state = problem.scheduler_state
    assert state is not None
    choice = FifoBackfill()(problem).choice
    waiting = [int(j) for j in np.argsort(state.arrived_s, kind="stable") if choice[j] == 0 and state.requested[j]]
    if not waiting:
        return
    head = waiting[0]
    alone = np.where(state.arrived_s <= state.arrived_s[head], choice, problem.current)
    assert _first_fit_s(problem, choice, head) <= _first_fit_s(problem, alone, head) + 1e-6


def _first_fit_s(problem: Problem, choice: np.ndarray, head: int) -> float:
    """Return when one of the head's candidates of its requested size fits, while the chosen jobs end one by one."""
    state = problem.scheduler_state
    assert state is not None
    rows = np.arange(len(choice))
    ends_s = state.seconds_left()[rows, choice] + state.restart_s * (choice != problem.current)
    ends_s = np.where(choice > 0, ends_s, 0.0)
    size = problem.units[head, state.requested[head]]
    wanted = problem.offered[head] & (problem.units[head] == size)
    wanted[0] = False
    for time_s in np.unique([0.0, *ends_s]):
        left = np.where(ends_s > time_s, choice, 0)
        free = problem.capacity * (1 + 2 * ROUNDING) - problem.used(left)
        if (problem.needs[head, wanted] <= free).all(axis=1).any():
            return float(time_s)
    return np.inf
