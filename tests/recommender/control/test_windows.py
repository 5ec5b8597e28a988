from __future__ import annotations

import math
from typing import Any

import pytest

from sizewright.recommender.control.windows import MetricsWindows, Window, merged
from sizewright.spec import Metrics
from sizewright.spec.reason import Reason
from sizewright.spec.wording import sentence
from tests.helpers.synthetic_metrics import metrics


def windows_of(*observations: tuple[float, Metrics]) -> list[Window | Reason]:
    windows = MetricsWindows()
    return [windows.add(at_s, each) for at_s, each in observations]


def skipped(windows: MetricsWindows, at_s: float, observation: Metrics) -> str:
    """Return why an observation is skipped."""
    reason = windows.add(at_s, observation)
    assert isinstance(reason, Reason)
    return sentence(reason)


def test_window_contains_its_own_work_only() -> None:
    first, window = windows_of((100.0, metrics(10.0)), (102.0, metrics(12.0)))
    assert isinstance(first, Reason)
    assert sentence(first) == "Skipped: this is the first observation."
    assert isinstance(window, Window)
    assert (window.seconds, window.samples, window.throughput) == (2.0, 200, 100.0)
    assert [replica.name for replica in window.of("worker")] == ["worker-0", "worker-1", "worker-2"]
    worker = window.of("worker")[0]
    assert (worker.steps, worker.seconds) == (20, 2.0)
    assert worker.compute_s == pytest.approx(1.6)
    assert window.of("ps")[0].rows == 1000


def test_consecutive_windows_are_merged() -> None:
    windows = MetricsWindows()
    added = [windows.add(t, metrics(t, workers=2 + (t > 10))) for t in (10.0, 11.0, 13.0, 14.0)]
    total = merged([window for window in added if isinstance(window, Window)])
    assert (total.seconds, total.samples, total.at_s, total.throughput) == (4.0, 400, 14.0, 100.0)
    assert {worker.name: worker.seconds for worker in total.of("worker")} == {
        "worker-0": 4.0, "worker-1": 4.0, "worker-2": 3.0,
    }  # fmt: skip
    assert total.of("worker")[0].steps == 40


def test_replicas_that_start_or_stop_are_not_in_the_window() -> None:
    _, window = windows_of((1.0, metrics(10.0, workers=2)), (2.0, metrics(11.0, workers=4, ps=1)))
    assert isinstance(window, Window)
    assert [replica.name for replica in window.replicas] == ["worker-0", "worker-1", "ps-0"]


@pytest.mark.parametrize(
    ("observation", "why"),
    [
        ((0.5, metrics(12.0)), "the clock did not advance"),
        ((1.0, metrics(12.0)), "the clock did not advance"),
        ((1.01, metrics(12.0)), "the last observation was just before"),
        ((math.nan, metrics(12.0)), "the clock returned nan"),
        ((2.0, metrics(12.0, worker_1={"compute_s": math.nan})), "worker-1 reports invalid numbers"),
        ((2.0, metrics(12.0, ps_0={"busy_s": -1.0})), "ps-0 reports invalid numbers"),
        ((2.0, metrics(12.0, worker_2={"steps": 3})), "the counters of worker-2 decreased"),
        ((2.0, metrics(12.0, rate=10.0)), "fewer samples are trained"),
        ((2.0, metrics(10.0)), "no replica has reported anything"),
        (
            (2.0, metrics(12.0).model_copy(update={"samples_left": -1})),
            "the number of remaining samples is negative (-1)",
        ),
    ],
)
def test_invalid_observation_is_skipped_and_the_next_is_used(observation: tuple[float, Metrics], why: str) -> None:
    windows = MetricsWindows()
    windows.add(1.0, metrics(10.0))
    assert skipped(windows, *observation).startswith(f"Skipped: {why}")
    assert isinstance(windows.add(10.0, metrics(20.0)), Window)


@pytest.mark.parametrize(
    ("at_s", "job_s", "why"), [(3602.0, 12.0, "3601 s passed for the loop, but 2 s"), (2.0, 3610.0, "1 s passed")]
)
def test_clock_jump_is_skipped_and_the_next_observation_is_used(at_s: float, job_s: float, why: str) -> None:
    windows = MetricsWindows()
    windows.add(1.0, metrics(10.0))
    assert skipped(windows, at_s, metrics(job_s)).startswith(f"Skipped: a clock jumped: {why}")
    assert isinstance(windows.add(at_s + 1.0, metrics(job_s + 1.0)), Window)


def test_replica_that_is_reported_twice_is_not_trusted() -> None:
    good = metrics(10.0)
    twice: Any = good.model_copy(update={"replicas": (*good.replicas, good.replicas[0])})
    assert windows_of((1.0, twice)) == [Reason.of("replica_twice")]


def test_forget_begins_a_new_window() -> None:
    windows = MetricsWindows()
    windows.add(1.0, metrics(10.0))
    windows.forget()
    assert windows.add(2.0, metrics(11.0)) == Reason.of("first_observation")
