from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.cluster.allocators.registry import get_allocator
from sizewright.cluster.simulator.capacity import Capacity
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.recommender.machines.interruptions import (
    Checkpoints,
    ExtraTime,
    WorkTimes,
    probability_within,
    time_quantiles,
)
from tests.helpers.workloads import workload_of

HOUR = 3600.0
works = st.floats(60.0, 1e6)
rates = st.floats(1e-8, 1e-3)
everys = st.floats(60.0, 1e5)
restarts = st.floats(0.0, 3600.0)


def mean_s(work_s: float, rate: float, every_s: float, restart_s: float) -> float:
    return float(Checkpoints(every_s, restart_s).expected_time_s(np.array([work_s]), rate)[0])


def certain(work_s: float) -> WorkTimes:
    return WorkTimes(np.array([work_s]), np.array([1e-9]), np.array([1e-9]))


def simulated(work_s: float, rate: float, checkpoints: Checkpoints, runs: int = 400) -> np.ndarray:
    """Return the completion times of equal jobs on one host each, simulated by the cluster simulator."""
    workload = workload_of(np.full(runs, work_s), sizes=(1,), restart_s=checkpoints.restart_s)
    rules = Settings(every_s=1e12, failures_a_day=rate * 86400, saved_every_s=checkpoints.every_s, seed=1)
    return Simulation(workload, Capacity(np.array([float(runs)])), get_allocator("fifo"), rules).run().finished_s


@given(works, everys, restarts)
def test_time_without_interruptions_is_the_work(work_s: float, every_s: float, restart_s: float) -> None:
    assert mean_s(work_s, 0.0, every_s, restart_s) == pytest.approx(work_s)
    assert float(Checkpoints(every_s, restart_s).slowdown(0.0)) == pytest.approx(1.0)


def test_time_without_checkpoints_and_restart_is_that_of_a_run_of_successes() -> None:
    # The mean time until an hour passes without an interruption, of which there is one an hour: e - 1 hours.
    assert mean_s(HOUR, 1 / HOUR, 1e9, 0.0) == pytest.approx(HOUR * (math.e - 1))


def test_time_with_instant_checkpoints_is_the_work_and_the_restarts() -> None:
    # An interruption costs only its restart, during which there are others: λW(e^λR - 1)/λ.
    rate, restart_s = 2 / HOUR, 600.0
    expected = 10 * HOUR * math.exp(rate * restart_s)
    assert mean_s(10 * HOUR, rate, 0.01, restart_s) == pytest.approx(expected, rel=1e-4)


def test_time_of_whole_intervals_is_dalys() -> None:
    every_s, restart_s, mean_between_s = 1800.0, 300.0, 4 * HOUR
    daly = mean_between_s * math.exp(restart_s / mean_between_s) * math.expm1(every_s / mean_between_s) * 20
    assert mean_s(20 * every_s, 1 / mean_between_s, every_s, restart_s) == pytest.approx(daly)


def test_time_is_youngs_where_interruptions_are_rare() -> None:
    work_s, rate, every_s, restart_s = 100 * HOUR, 1e-3 / HOUR, 1800.0, 300.0
    young = work_s * (1 + rate * (every_s / 2 + restart_s))
    assert mean_s(work_s, rate, every_s, restart_s) == pytest.approx(young, rel=1e-6)


def test_time_is_infinite_where_no_checkpoint_is_reached() -> None:
    assert mean_s(1e6, 1.0, 1e5, 60.0) == math.inf
    assert time_quantiles(np.array([0.5]), certain(1e6), 1.0, Checkpoints(1e5, 60.0))[0] == math.inf
    assert probability_within(2e6, certain(1e6), np.array([1.0]), Checkpoints(1e5, 60.0))[0] == 0


@given(works, rates, st.floats(1.0, 10.0), everys, restarts)
def test_time_grows_with_the_rate(work_s: float, rate: float, times: float, every_s: float, restart_s: float) -> None:
    fewer, more = (mean_s(work_s, each, every_s, restart_s) for each in (rate, rate * times))
    assert work_s * (1 - 1e-9) <= fewer <= more * (1 + 1e-9)


@given(works, rates, everys, st.integers(2, 10), restarts)
def test_time_falls_with_the_interval(work_s: float, rate: float, every_s: float, parts: int, restart_s: float) -> None:
    """Each checkpoint of the longer interval is one of the shorter interval, too."""
    seldom, often = (mean_s(work_s, rate, each, restart_s) for each in (every_s, every_s / parts))
    assert often <= seldom * (1 + 1e-9)


@given(rates, everys, restarts)
def test_slowdown_is_the_time_of_a_long_job_over_its_work(rate: float, every_s: float, restart_s: float) -> None:
    slowdown = float(Checkpoints(every_s, restart_s).slowdown(rate))
    assert mean_s(1000 * every_s, rate, every_s, restart_s) == pytest.approx(1000 * every_s * slowdown, rel=1e-6)


def test_job_that_is_not_interrupted_ends_in_time() -> None:
    checkpoints, rate = Checkpoints(1800.0, 300.0), 0.1 / HOUR
    # A deadline just after the work is met if and only if there is no interruption.
    met = [
        probability_within(2 * HOUR + 1, certain(2 * HOUR), np.array([each]), checkpoints)[0] for each in (rate, 0.0)
    ]
    assert met == pytest.approx([math.exp(-0.2), 1.0], abs=1e-3)
    assert probability_within(2 * HOUR - 1, certain(2 * HOUR), np.array([rate]), checkpoints)[0] == 0


@settings(max_examples=20)
@given(st.floats(600.0, 1e5), rates, everys, restarts, st.floats(0.01, 0.3))
def test_probability_falls_with_the_rate_and_grows_with_the_deadline(
    work_s: float, rate: float, every_s: float, restart_s: float, sd: float
) -> None:
    works = WorkTimes(np.full(3, work_s), np.full(3, sd), np.full(3, sd))
    several = np.array([0.0, rate, 3 * rate])
    early, late = (
        probability_within(factor * work_s, works, several, Checkpoints(every_s, restart_s)) for factor in (1.1, 1.6)
    )
    assert (np.diff(early) <= 2e-3).all()
    assert (early <= late + 2e-3).all()
    assert early[0] == pytest.approx(works.within(np.array([1.1 * work_s]))[0, 0], abs=1e-3)


def test_quantile_is_met_with_its_probability() -> None:
    checkpoints, rate = Checkpoints(1800.0, 300.0), 0.3 / HOUR
    works = WorkTimes(np.array([10 * HOUR]), np.array([0.1]), np.array([0.05]))
    shares = np.array([0.05, 0.5, 0.9, 0.95])
    times_s = time_quantiles(shares, works, rate, checkpoints)
    met = [probability_within(float(time), works, np.array([rate]), checkpoints)[0] for time in times_s]
    assert met == pytest.approx(shares, abs=0.01)


def test_works_have_the_quantiles_that_they_were_given() -> None:
    works = WorkTimes.of(np.array([10.0]), np.array([8.0]), np.array([15.0]), faster=0.05, slower=0.9)
    assert works.quantiles(np.array([0.05, 0.5, 0.9]))[0] == pytest.approx([8.0, 10.0, 15.0])
    assert works.within(np.array([8.0, 10.0, 15.0]))[0] == pytest.approx([0.05, 0.5, 0.9])


@pytest.mark.parametrize(
    ("work_s", "rate_hour", "every_s", "restart_s"),
    [(5 * HOUR, 0.3, 1800.0, 300.0), (2 * HOUR, 0.4, 1e6, 60.0), (3 * HOUR, 0.6, 600.0, 900.0)],
)
def test_closed_form_agrees_with_the_simulator(
    work_s: float, rate_hour: float, every_s: float, restart_s: float
) -> None:
    checkpoints, rate = Checkpoints(every_s, restart_s), rate_hour / HOUR
    times_s = simulated(work_s, rate, checkpoints)
    error = times_s.std() / math.sqrt(len(times_s))
    assert mean_s(work_s, rate, every_s, restart_s) == pytest.approx(times_s.mean(), abs=3.5 * error)
    for share in (0.7, 0.95):
        deadline_s = float(np.quantile(times_s, share)) + 1.0
        met = probability_within(deadline_s, certain(work_s), np.array([rate]), checkpoints)[0]
        assert met == pytest.approx((times_s <= deadline_s).mean(), abs=0.07)


def test_extra_time_has_the_mean_of_the_closed_form() -> None:
    checkpoints, work_s, rate = Checkpoints(1800.0, 300.0), np.array([5 * HOUR, 20 * HOUR]), 0.5 / HOUR
    extra_s = checkpoints.expected_time_s(work_s, rate) - work_s
    extra = ExtraTime(work_s, rate, checkpoints, span_s=float(20 * extra_s.max()))
    times_s, probability = extra.times(work_s)
    means = (times_s * probability).reshape(2, -1).sum(axis=1) * 2 - work_s
    assert means == pytest.approx(extra_s, rel=0.01)
