"""The simulator accounts for time: when work is done, and what changes and failures cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from sizewright.cluster.allocators.registry import ALLOCATORS, get_allocator
from sizewright.cluster.simulator.capacity import Capacity
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.outcome import SimulationResult
from sizewright.cluster.simulator.state import SimulationState
from sizewright.cluster.simulator.workload import Workload
from sizewright.errors import InputError
from tests.helpers.workloads import random_workload, workload_of

AT_ONCE = Settings(every_s=0.0, window_s=60.0)


def run(workload: Workload, capacity: float, policy: str = "default", settings: Settings = AT_ONCE) -> SimulationResult:
    return Simulation(workload, Capacity(np.array([capacity])), get_allocator(policy), settings).run()


def floor_s(work: np.ndarray, servers: float, power: float) -> float:
    """Return the least mean completion time of jobs that all arrive at the start.

    The shares are those of heSRPT (Berg, Vesilo and Harchol-Balter 2020), exact for speeds k**power.
    """
    remaining, now_s, total_s = np.sort(work)[::-1].astype(float), 0.0, 0.0
    while len(remaining):
        i, m = np.arange(1, len(remaining) + 1), len(remaining)
        share = (i / m) ** (1 / (1 - power)) - ((i - 1) / m) ** (1 / (1 - power))
        speed = (share * servers) ** power
        step = remaining[-1] / speed[-1]
        now_s, total_s, remaining = now_s + step, total_s + now_s + step, (remaining - step * speed)[:-1]
    return total_s / len(work)


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
def test_no_policy_beats_the_exact_lower_bound(policy: str) -> None:
    work = np.random.default_rng(4).lognormal(6, 1.2, 40)
    workload = workload_of(work, power=0.7, sizes=np.arange(1, 101), asked=10)
    jct_s = run(workload, 100.0, policy, Settings(every_s=1.0, window_s=60.0)).figures()["jct_s"]
    assert jct_s >= floor_s(work, 100.0, 0.7) * (1 - 1e-9)


def test_default_policy_is_close_to_the_exact_lower_bound() -> None:
    work = np.random.default_rng(4).lognormal(6, 1.2, 40)
    workload = workload_of(work, power=0.7, sizes=np.arange(1, 101), asked=10)
    jct_s = run(workload, 100.0, "default", Settings(every_s=1.0, window_s=60.0)).figures()["jct_s"]
    assert jct_s <= floor_s(work, 100.0, 0.7) * 1.15


def test_lower_bound_of_one_job_is_its_work_at_full_speed() -> None:
    assert floor_s(np.array([100.0]), 16.0, 0.5) == pytest.approx(25.0)
    assert run(workload_of(100.0, power=0.5, sizes=[16]), 16.0).figures()["jct_s"] == pytest.approx(25.0)


def test_rigid_jobs_finish_at_hand_computed_times() -> None:
    workload = workload_of([100, 50, 10], arrived=[0, 10, 20], power=1.0, sizes=[2], elastic=False)
    fifo = run(workload, 2.0, "fifo")
    assert list(fifo.finished_s) == pytest.approx([50, 75, 80])
    assert list(fifo.waited_s) == pytest.approx([0, 40, 55])
    sjf = run(workload, 2.0, "sjf", Settings(every_s=0.0, preempts=False))
    assert list(sjf.finished_s) == pytest.approx([50, 80, 55])


def test_preempted_job_pays_its_restart_and_scaled_job_its_change() -> None:
    rigid = workload_of([100, 10], arrived=[0, 20], power=1.0, sizes=[2], elastic=False, restart_s=7.0)
    assert list(run(rigid, 2.0, "sjf").finished_s) == pytest.approx([50 + 5 + 7, 25])
    scaled = workload_of([100, 10], arrived=[0, 20], power=0.5, sizes=[1, 2], elastic=True, change_s=3.0)
    result = run(scaled, 2.0, "slope")
    assert list(result.changes) == [2, 0]
    assert result.finished_s[1] == pytest.approx(30.0)
    assert result.finished_s[0] == pytest.approx(33 + (100 - 20 * 2**0.5 - 7) / 2**0.5)


@pytest.mark.parametrize("policy", sorted(ALLOCATORS))
@of_hypothesis(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), every_s=st.sampled_from([0.0, 30.0, 300.0]), preempts=st.booleans())
def test_all_work_is_done_within_the_capacity(policy: str, seed: int, every_s: float, preempts: bool) -> None:
    workload = random_workload(seed, change_s=2.0, restart_s=5.0)
    result = run(workload, 16.0, policy, Settings(every_s=every_s, window_s=60.0, preempts=preempts))
    assert np.isfinite(result.finished_s).all()
    assert (result.finished_s >= workload.arrived_s + workload.work / workload.speed.max() - 1e-6).all()
    assert np.allclose(result.finished_s - result.arrived_s, result.waited_s + result.ran_s, atol=1e-6)
    assert 0 < result.used[0] <= 1 + 1e-9
    if not preempts:
        assert not result.preemptions.any()


def test_same_seed_gives_the_same_result_and_another_does_not() -> None:
    workload = random_workload(3, 60, restart_s=20.0)
    settings = [Settings(every_s=30.0, failures_a_day=40.0, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (run(workload, 16.0, settings=each).finished_s for each in settings)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_failures_cost_time_and_lose_no_job() -> None:
    workload = random_workload(3, 60, restart_s=20.0)
    reliable, failing = (
        run(workload, 16.0, settings=Settings(every_s=30.0, failures_a_day=rate, saved_every_s=60.0)).figures()
        for rate in (0.0, 200.0)
    )
    assert failing["unfinished"] == 0
    assert failing["jct_s"] > reliable["jct_s"]


def test_jobs_unfinished_at_the_end_time_are_counted() -> None:
    workload = workload_of([100, 1000], power=1.0, sizes=[1], elastic=False)
    figures = run(workload, 2.0, "fifo", Settings(every_s=0.0, until_s=200.0)).figures()
    assert (figures["unfinished"], figures["jct_s"]) == (1.0, 100.0)


def test_fairness_and_use_of_undisturbed_jobs() -> None:
    figures = run(workload_of([100.0, 100.0], power=1.0, sizes=[1], elastic=False), 4.0, "fifo").figures()
    assert figures["fairness"] == pytest.approx(1.0)
    assert figures["use"] == pytest.approx(0.5)
    assert figures["makespan_s"] == pytest.approx(100.0)


def test_invalid_workload_is_refused() -> None:
    with pytest.raises(InputError, match="not above 0"):
        workload_of([10.0, 0.0])
    good = random_workload(1)
    with pytest.raises(InputError, match="order of arrival"):
        Workload(**(vars(good) | {"arrived_s": good.arrived_s[::-1]}))
    with pytest.raises(InputError, match="has no speed or is not offered"):
        Workload(**(vars(good) | {"requested": np.zeros(30, dtype=np.intp)}))


def test_failures_occur_at_the_configured_rate() -> None:
    workload = workload_of([20 * 86400.0], power=1.0, sizes=[4], elastic=False, restart_s=100.0)
    failing = Settings(every_s=0.0, failures_a_day=1.0, saved_every_s=1e-3, seed=1)
    result = Simulation(workload, Capacity(np.array([4.0])), get_allocator("fifo"), failing).run()
    assert 0 < result.failures[0] < 60  # 5 days of 4 units, 20 failures expected
    assert result.finished_s[0] == pytest.approx(5 * 86400 + 100.0 * result.failures[0], abs=1.0)
    counts = [
        int(
            Simulation(workload, Capacity(np.array([4.0])), get_allocator("fifo"), replace(failing, seed=seed))
            .run()
            .failures[0]
        )
        for seed in range(40)
    ]
    assert np.mean(counts) == pytest.approx(20, abs=3)


def test_job_that_always_fails_is_abandoned_and_the_others_finish() -> None:
    workload = workload_of([1e5, 10.0], power=1.0, sizes=[1, 100], elastic=[True, False], restart_s=10.0)
    workload.offered[0], workload.requested[0] = [True, False, True], 2
    failing = Settings(every_s=0.0, failures_a_day=100.0)
    result = Simulation(workload, Capacity(np.array([100.0])), get_allocator("fifo"), failing).run()
    assert (result.failures[0], np.isnan(result.finished_s[0])) == (1000, True)
    assert np.isfinite(result.finished_s[1])


def test_scaling_does_not_shorten_a_restart() -> None:
    workload = workload_of([1000.0], sizes=[1, 2], change_s=5.0, restart_s=60.0)
    state = SimulationState(workload)
    state.advance(0.0)
    for column in (1, 0, 1):
        state.assign(np.array([0]), np.array([column]))
    state.advance(10.0)
    state.assign(np.array([0]), np.array([2]))
    assert state.stalled_until[0] == 60.0


def test_jobs_that_arrive_after_the_end_do_not_count() -> None:
    workload = workload_of([100.0, 100.0, 100.0], arrived=[0.0, 0.0, 1000.0], sizes=[1], elastic=False)
    settings = Settings(every_s=0.0, until_s=150.0)
    figures = Simulation(workload, Capacity(np.array([1.0])), get_allocator("fifo"), settings).run().figures()
    assert (figures["jobs"], figures["unfinished"], figures["queueing_s"]) == (2, 1, 50.0)


@pytest.mark.parametrize(
    "options",
    [{"every_s": -1.0}, {"every_s": float("nan")}, {"failures_a_day": -1.0}, {"until_s": 0.0}, {"saved_every_s": 0.0}],
)
def test_invalid_settings_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Settings(**options)
