"""Speeds that are learned: policies see the truth where a job has run, and estimates elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from sizewright.cluster.allocators._base import Allocator
from sizewright.cluster.allocators.registry import ALLOCATORS, get_allocator
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution
from sizewright.cluster.simulator.capacity import Capacity
from sizewright.cluster.simulator.curves import Elasticity
from sizewright.cluster.simulator.curves import workload_of as workload_of_trace
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.measured_curves import MeasuredCurve
from sizewright.cluster.simulator.outcome import SimulationResult
from sizewright.cluster.simulator.speeds import LearnedSpeeds
from sizewright.cluster.simulator.state import SimulationState
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError
from tests.helpers.workloads import random_workload, workload_of

LEARNED = Settings(every_s=30.0, window_s=60.0, speeds="learned")
ONE = np.array([0])


def learned(workload: Workload, *ran: int, error: float = 0.0) -> LearnedSpeeds:
    """Return the speeds after the first job has trained for a while with each of the columns `ran`."""
    speeds, state = LearnedSpeeds(workload, error, seed=1), SimulationState(workload)
    state.advance(0.0)
    for number, column in enumerate(ran):
        state.assign(ONE, np.array([column]))
        state.advance(number + 1.0)
    speeds.observe(state)
    return speeds


def test_new_job_scales_linearly_from_its_smallest_size() -> None:
    speeds = learned(workload_of([1000.0], power=0.5, sizes=[1, 2, 4, 8], asked=3))
    assert speeds.estimates(ONE)[0].tolist() == pytest.approx([0, 1, 2, 4, 8])
    assert speeds.offered(ONE)[0].tolist() == [True, True, False, True, False]  # the smallest, and the request


def test_two_known_sizes_give_a_power_law_and_twice_the_largest_is_offered() -> None:
    speeds = learned(workload_of([1000.0], power=0.5, sizes=[1, 2, 4, 8, 16], asked=1), 1, 2)
    assert speeds.estimates(ONE)[0].tolist() == pytest.approx([0, 1, 2**0.5, 2, 8**0.5, 4])
    assert speeds.offered(ONE)[0].tolist() == [True, True, True, True, False, False]


def test_next_size_is_offered_where_sizes_are_far_apart() -> None:
    speeds = learned(workload_of([1000.0], sizes=[1, 8, 64]), 1)
    assert speeds.offered(ONE)[0].tolist() == [True, True, True, False]


def test_estimates_err_where_a_job_has_not_run_only() -> None:
    workload = workload_of(np.full(400, 1000.0), power=1.0, sizes=[1, 2, 4])
    speeds = learned(workload, 1, error=0.2)
    estimates = speeds.estimates(np.arange(400))
    assert (estimates[:, 1] == workload.speed[:, 1]).all()
    errors = np.log(estimates[:, 2:] / workload.speed[:, 2:])
    assert errors.std() == pytest.approx(0.2, rel=0.15)
    after = learned(workload, 1, 2, 3, error=0.2)
    assert after.estimates(ONE)[0].tolist() == workload.speed[0].tolist()
    again = learned(workload, 1, error=0.2)
    assert (again.estimates(np.arange(400)) == estimates).all()


def test_other_kind_scales_as_the_kind_on_which_a_job_ran() -> None:
    sizes = np.array([1.0, 2, 4])
    curve = MeasuredCurve("a", {"v": (sizes, np.array([10.0, 15, 20])), "w": (sizes, np.array([30.0, 40, 50]))})
    trace = Trace(
        ("a",), np.zeros(1), np.ones(1) * 1000, {"gpu": np.ones(1)}, gpu_kinds=("v",), curves=("a",),
    )  # fmt: skip
    workload = workload_of_trace(trace, Elasticity(change_s=0.0), {"a": curve}, kinds=("v", "w"))
    speeds = learned(workload, 1, 2)
    on_v, on_w = speeds.estimates(ONE)[0, 1:4], speeds.estimates(ONE)[0, 4:]
    assert on_v.tolist() == pytest.approx([1.0, 1.5, 1.5**2])
    assert on_w.tolist() == pytest.approx([3.0, 4.5, 3 * 1.5**2])


class Recorder(Allocator):
    """Runs a policy and keeps what it saw."""

    name = "recorder"

    def __init__(self, policy: str) -> None:
        self.policy = get_allocator(policy)
        self.seen: list[Problem] = []

    def choose(self, problem: Problem, until: float) -> Solution:
        self.seen.append(problem)
        return self.policy.choose(problem, until)


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
def test_every_policy_sees_the_same_estimates(policy: str) -> None:
    recorder, workload = Recorder(policy), random_workload(3, 12)
    result = Simulation(workload, Capacity(np.array([16.0])), recorder, LEARNED).run()
    assert np.isfinite(result.finished_s).all()
    first = recorder.seen[0].scheduler_state
    assert first is not None
    smallest = workload.offered[0, 1:].argmax() + 1
    assert first.speed[0, smallest] == workload.speed[0, smallest]
    larger = workload.offered[0].copy()
    larger[: smallest + 1] = False
    assert not larger.any() or (first.speed[0, larger] != workload.speed[0, larger]).all()


@of_hypothesis(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(["default", "slope", "sia", "fifo"]))
def test_all_work_is_done_and_equal_seeds_give_equal_results(seed: int, policy: str) -> None:
    def run() -> SimulationResult:
        workload = random_workload(seed, 25, restart_s=5.0)
        return Simulation(workload, Capacity(np.array([16.0])), get_allocator(policy), LEARNED).run()

    first, again = run(), run()
    assert np.isfinite(first.finished_s).all()
    assert np.array_equal(first.finished_s, again.finished_s)


def test_learning_costs_time() -> None:
    """A job that could start at 8 times its smallest size must first run at smaller ones."""
    workload = workload_of([4000.0], power=0.9, sizes=[1, 2, 4, 8])
    known, learning = (
        Simulation(workload, Capacity(np.array([8.0])), get_allocator("default"), each).run().finished_s[0]
        for each in (Settings(every_s=30.0, window_s=60.0), LEARNED)
    )
    assert learning > known


def test_unknown_name_of_speeds_is_refused() -> None:
    with pytest.raises(InputError, match="Speeds cannot be 'guessed'"):
        Settings(speeds="guessed")
