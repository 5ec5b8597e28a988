"""The clock of the simulator, the pauses of its jobs, and what becomes of each job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sizewright as sw
from sizewright.cluster.allocators import Allocator, get_allocator
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution, chosen
from sizewright.cluster.simulator.capacity import Capacity
from sizewright.cluster.simulator.curves import Elasticity
from sizewright.cluster.simulator.curves import workload_of as workload_of_trace
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.outcome import SimulationResult
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.traces import read_trace
from sizewright.errors import InputError
from tests.helpers.workloads import random_workload, workload_of


def run(workload: Workload, capacity: float, policy: str | Allocator, **options: object) -> SimulationResult:
    supply = Capacity(np.array([capacity]))
    return Simulation(workload, supply, get_allocator(policy), Settings(**options)).run()  # type: ignore[arg-type]


def test_jobs_start_at_ticks_only_and_the_clock_ticks_without_events() -> None:
    workload = workload_of([500, 10], arrived=[0, 70], power=1.0, sizes=[1], elastic=False)
    result = run(workload, 1.0, "fifo", clock_s=60.0)
    assert list(result.started_s) == [0.0, 540.0]
    assert list(result.finished_s) == [500.0, 550.0]
    assert [each.now_s for each in result.decisions] == [60.0 * tick for tick in range(10)]


def test_demotion_stops_a_job_at_the_tick_after_it() -> None:
    workload = workload_of([1000, 1000], arrived=[0, 10], power=1.0, sizes=[1], elastic=False)
    result = run(workload, 1.0, "tiresias:100", clock_s=60.0)
    assert list(result.started_s) == [0.0, 120.0]
    assert run(workload, 1.0, "tiresias:100", every_s=0.0).started_s[1] == 1000.0  # nothing happens before


@given(seed=st.integers(0, 1000), clock_s=st.sampled_from([7.3, 60.0, 361.7]))
@settings(max_examples=10)
def test_every_decision_is_at_a_multiple_of_the_clock(seed: int, clock_s: float) -> None:
    workload = random_workload(seed, 12)
    result = run(workload, 4.0, "sjf", clock_s=clock_s, until_s=3000.0)
    times = np.array([each.now_s for each in result.decisions])
    assert (np.diff(times) > 0).all()
    assert np.array_equal(np.round(times / clock_s) * clock_s, times)
    assert np.isin(result.started_s[np.isfinite(result.started_s)], times).all()
    assert (result.started_s[np.isfinite(result.started_s)] < 3000).all()


class _Nothing(Allocator):
    name = "nothing"

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        return chosen(problem, self.name, np.zeros(len(problem.jobs), dtype=np.intp))


def test_clock_stops_when_nothing_can_happen_any_more() -> None:
    result = run(workload_of([10, 10], arrived=[0, 130]), 1.0, _Nothing(), clock_s=60.0)
    assert [each.now_s for each in result.decisions][-1] == 180.0
    assert np.isnan(result.finished_s).all()


@pytest.mark.parametrize("clock_s", [0.0, -1.0, np.nan, np.inf])
def test_clock_that_is_not_above_zero_is_refused(clock_s: float) -> None:
    with pytest.raises(InputError, match="clock must tick at intervals above 0 s"):
        Settings(clock_s=clock_s)


@pytest.mark.parametrize("name", ["start_up_s", "change_s", "restart_s"])
def test_negative_pause_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must be 0 or more, got -1"):
        Elasticity(**{name: -1.0})  # type: ignore[arg-type]


def test_first_start_and_restart_take_their_own_times() -> None:
    workload = workload_of(
        [100, 10], arrived=[0, 20], power=1.0, sizes=[2], elastic=False, start_up_s=5.0, restart_s=7.0
    )
    result = run(workload, 2.0, "sjf", every_s=0.0)
    assert result.finished_s[1] == pytest.approx(20 + 5 + 5)
    assert result.finished_s[0] == pytest.approx(30 + 7 + (50 - 15))


def test_pauses_of_a_trace_take_precedence_over_those_of_all_jobs(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job,arrived_s,duration_s,gpu,start_up_s,restart_s\na,0,10,1,1m,5\nb,1,10,1,,\nc,2,10,1,-3,\n")
    trace = read_trace(path)
    assert trace.jobs == ("a", "b")
    assert any("a pause that is negative" in note for note in trace.notes)
    workload = workload_of_trace(trace, Elasticity(start_up_s=2.0, change_s=3.0, restart_s=4.0))
    assert list(workload.start_up_s) == [60.0, 2.0]
    assert list(workload.change_s) == [3.0, 3.0]
    assert list(workload.restart_s) == [5.0, 4.0]
    assert list(trace.pick(np.array([1])).pauses["restart_s"]) != list(trace.pauses["restart_s"])


def test_outcomes_state_what_became_of_each_job() -> None:
    rows = [
        {"job": "long", "arrived_s": 0, "duration_s": 100, "gpu": 2},
        {"job": "short", "arrived_s": 20, "duration_s": 10, "gpu": 2},
    ]
    answer = sw.simulate(
        rows, policies=["sjf"], cluster={"hosts": [{"kind": "a", "count": 1, "cpu": 8, "memory": "8Gi",
        "gpu": {"kind": "v100", "count": 2}}]}, outcomes=True,
        elasticity=Elasticity(share=0.0, error=0.0, restart_s=7.0), settings=Settings(every_s=0.0),
    )  # fmt: skip
    long, short = answer.runs[0].outcomes
    assert (long.job, long.started_s, long.finished_s, long.preemptions) == ("long", 0.0, 117.0, 1)
    assert (long.waited_s, long.ran_s, list(long.attained.values())) == (10.0, 107.0, [214.0])
    assert (short.arrived_s, short.started_s, short.finished_s, short.waited_s) == (20.0, 20.0, 30.0, 0.0)
    table = answer.outcomes_frame()
    assert list(table["job"]) == ["long", "short"]
    assert any(name.startswith("attained_") for name in table.columns)


def test_outcomes_add_up_to_the_figures_of_the_run() -> None:
    workload = random_workload(3, 40)
    result = run(replace(workload, restart_s=np.full(40, 5.0)), 6.0, "tiresias:300", clock_s=30.0)
    assert result.attained[:, 0] == pytest.approx(result.attained.sum(axis=1))
    ended = np.isfinite(result.finished_s)
    assert (result.waited_s + result.ran_s)[ended] == pytest.approx((result.finished_s - result.arrived_s)[ended])
