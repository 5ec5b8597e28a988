from __future__ import annotations

import math
from typing import Any

import pytest
from made_metrics import metrics

from sizewright.recommender.windows import Looks, Window, merged
from sizewright.spec import Metrics


def looks_at(*told: tuple[float, Metrics]) -> list[Window | str]:
    looks = Looks()
    return [looks.add(at_s, each) for at_s, each in told]


def test_a_window_tells_what_was_done_in_it_only() -> None:
    first, window = looks_at((100.0, metrics(10.0)), (102.0, metrics(12.0)))
    assert first == "this is the first look"
    assert isinstance(window, Window)
    assert (window.seconds, window.samples, window.throughput) == (2.0, 200, 100.0)
    assert [replica.name for replica in window.of("worker")] == ["worker-0", "worker-1", "worker-2"]
    worker = window.of("worker")[0]
    assert (worker.steps, worker.seconds) == (20, 2.0)
    assert worker.compute_s == pytest.approx(1.6)
    assert window.of("ps")[0].rows == 1000


def test_windows_that_follow_each_other_make_one() -> None:
    looks = Looks()
    told = [looks.add(t, metrics(t, workers=2 + (t > 10))) for t in (10.0, 11.0, 13.0, 14.0)]
    whole = merged([window for window in told if isinstance(window, Window)])
    assert (whole.seconds, whole.samples, whole.at_s, whole.throughput) == (4.0, 400, 14.0, 100.0)
    assert {worker.name: worker.seconds for worker in whole.of("worker")} == {
        "worker-0": 4.0, "worker-1": 4.0, "worker-2": 3.0,
    }  # fmt: skip
    assert whole.of("worker")[0].steps == 40


def test_replicas_that_come_or_go_are_not_in_it() -> None:
    _, window = looks_at((1.0, metrics(10.0, workers=2)), (2.0, metrics(11.0, workers=4, ps=1)))
    assert isinstance(window, Window)
    assert [replica.name for replica in window.replicas] == ["worker-0", "worker-1", "ps-0"]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ((0.5, metrics(12.0)), "the clock did not go on"),
        ((1.0, metrics(12.0)), "the clock did not go on"),
        ((1.01, metrics(12.0)), "the last look was just before"),
        ((math.nan, metrics(12.0)), "the clock tells no number"),
        ((2.0, metrics(12.0, worker_1={"compute_s": math.nan})), "worker-1 tells numbers that are none"),
        ((2.0, metrics(12.0, ps_0={"busy_s": -1.0})), "ps-0 tells numbers that are none"),
        ((2.0, metrics(12.0, worker_2={"steps": 3})), "the sums of worker-2 went back"),
        ((2.0, metrics(12.0, rate=10.0)), "fewer samples are trained"),
        ((2.0, metrics(10.0)), "no replica has told anything"),
        ((2.0, metrics(12.0).model_copy(update={"samples_left": -1})), "fewer than no samples are left"),
    ],
)
def test_what_cannot_be_is_not_trusted_and_the_next_look_is(told: tuple[float, Metrics], why: str) -> None:
    looks = Looks()
    looks.add(1.0, metrics(10.0))
    assert str(looks.add(*told)).startswith(why)
    assert isinstance(looks.add(10.0, metrics(20.0)), Window)


@pytest.mark.parametrize(
    ("at_s", "told_s", "why"), [(3602.0, 12.0, "3601 s passed for the loop, and 2 s"), (2.0, 3610.0, "1 s passed")]
)
def test_a_clock_that_jumps_is_not_trusted_and_the_next_look_is(at_s: float, told_s: float, why: str) -> None:
    looks = Looks()
    looks.add(1.0, metrics(10.0))
    assert str(looks.add(at_s, metrics(told_s))).startswith(f"a clock jumped: {why}")
    assert isinstance(looks.add(at_s + 1.0, metrics(told_s + 1.0)), Window)


def test_a_replica_that_is_told_twice_is_not_trusted() -> None:
    good = metrics(10.0)
    twice: Any = good.model_copy(update={"replicas": (*good.replicas, good.replicas[0])})
    assert looks_at((1.0, twice)) == ["a replica is told twice"]


def test_after_a_change_it_begins_anew() -> None:
    looks = Looks()
    looks.add(1.0, metrics(10.0))
    looks.forget()
    assert looks.add(2.0, metrics(11.0)) == "this is the first look"
