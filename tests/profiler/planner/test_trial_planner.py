from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.profiler import TrialPlanner
from sizewright.spec import Prices


def grid(counts_only: bool = False) -> pd.DataFrame:
    axes = itertools.product((1, 2, 4, 6, 8), (1, 2, 3), (1,) if counts_only else (1.0, 2.0), (0.5,))
    frame = pd.DataFrame(axes, columns=["workers", "ps", "worker_cpu", "ps_cpu"])
    return frame[["workers", "ps"]] if counts_only else frame


def rate(row: Any) -> float:
    """Return a throughput that saturates at the capacity of the PS."""
    think = 0.1 / row.get("worker_cpu", 1.0) + 0.01
    return 1e4 / ((think**3 + (row["workers"] * 0.02 / row["ps"]) ** 3) ** (1 / 3)) * row["workers"] / 100


def drive(planner: TrialPlanner, noise: float = 0.02, seed: int = 0) -> list[dict[str, Any]]:
    rng, asked = np.random.default_rng(seed), []
    while (allocation := planner.ask()) is not None:
        asked.append(allocation)
        planner.tell(allocation, rate(allocation) * rng.lognormal(0, noise))
    return asked


def score(frame: pd.DataFrame, objective: str) -> pd.Series:
    rates = frame.apply(rate, axis=1)
    cores = frame.workers * frame.get("worker_cpu", 1.0) + frame.ps * frame.get("ps_cpu", 1.0)
    if objective == "deadline":
        return (cores / rates).where(rates >= 0.8 * rates.max(), np.inf)
    return {"time": 1 / rates, "cost": cores / rates, "balanced": cores / rates**2}[objective]


@pytest.mark.parametrize("counts_only", [False, True])
@pytest.mark.parametrize("objective", ["time", "cost", "balanced", "deadline"])
def test_eight_trials_find_an_allocation_near_the_best_one(objective: str, counts_only: bool) -> None:
    frame = grid(counts_only)
    losses = []
    for seed in range(4):
        planner = TrialPlanner(frame, objective, seed=seed, max_trials=8)
        asked = drive(planner, seed=seed)
        assert 4 <= len(asked) <= 8
        assert len({tuple(a.values()) for a in asked}) == len(asked)
        best = planner.best()
        at = (frame == pd.Series(best)).all(axis=1)
        assert at.sum() == 1
        losses.append(score(frame, objective)[at].iloc[0] / score(frame, objective).min() - 1)
    assert np.mean(losses) < 0.07


def test_ask_repeats_until_tell_and_returns_none_when_done() -> None:
    planner = TrialPlanner(grid(), max_trials=5)
    first = planner.ask()
    assert planner.ask() == first
    assert not planner.done()
    drive(planner)
    assert planner.done()
    assert planner.ask() is None
    assert len(planner.trials) == 5


def test_ask_returns_plain_values_of_a_candidate() -> None:
    frame = grid().assign(sync="async", batch_size=512, throughput=1.0)
    allocation = TrialPlanner(frame).ask()
    assert allocation is not None
    assert {name: type(cell) for name, cell in allocation.items()} == {
        "workers": int, "ps": int, "worker_cpu": float, "ps_cpu": float, "batch_size": int, "sync": str,
    }  # fmt: skip


def test_failed_trial_is_neither_repeated_nor_recommended() -> None:
    planner = TrialPlanner(grid(), "time", max_trials=14)
    failed = []
    for i in itertools.count():
        allocation = planner.ask()
        if allocation is None:
            break
        assert allocation not in failed
        if allocation["workers"] == 8:
            failed.append(allocation)
            planner.tell(allocation, [0.0, float("nan"), None][i % 3])
        else:
            planner.tell(allocation, rate(allocation))
    assert failed
    assert planner.best() not in failed


def test_best_without_successful_trials_raises_error() -> None:
    planner = TrialPlanner(grid(), max_trials=6)
    with pytest.raises(NotEnoughDataError, match="No trial has succeeded"):
        planner.best()
    while (allocation := planner.ask()) is not None:
        planner.tell(allocation, 0.0, status="oom")
    with pytest.raises(NotEnoughDataError, match="No trial has succeeded"):
        planner.best()


def test_best_of_one_or_two_trials_is_the_better_measured() -> None:
    planner = TrialPlanner(grid(), "time")
    asked = [planner.ask()]
    planner.tell(asked[0], 5.0)  # type: ignore[arg-type]
    assert planner.best() == asked[0]
    asked.append(planner.ask())
    planner.tell(asked[1], 9.0)  # type: ignore[arg-type]
    assert planner.best() == asked[1]


def test_planner_stops_when_a_trial_costs_more_than_it_can_gain() -> None:
    """A short job justifies few trials, a long one more."""
    lengths = {}
    for samples in (3e5, 1e10):
        planner = TrialPlanner(grid(), "time", samples_left=samples, trial_seconds=10.0, max_trials=20)
        lengths[samples] = len(drive(planner))
    assert lengths[3e5] < lengths[1e10]


def test_prices_set_the_hourly_price_of_candidates() -> None:
    frame = grid()
    planner = TrialPlanner(frame, "cost", prices=Prices(core_hour=5.0, gib_hour=0.0, gpu_hour=0.0))
    assert planner.goal.hourly_price == pytest.approx(5 * (frame.workers * frame.worker_cpu + frame.ps * frame.ps_cpu))
    assert TrialPlanner(grid(True)).goal.hourly_price == pytest.approx(grid(True).sum(axis=1))
    gpus = TrialPlanner(frame.assign(worker_gpu=1), prices={"gpu_hour": 7.0, "core_hour": 0.0})
    assert gpus.goal.hourly_price == pytest.approx(7.0 * frame.workers)


def test_deadline_is_met_at_almost_the_lowest_cost() -> None:
    frame = grid()
    rates = frame.apply(rate, axis=1)
    needed = float(rates.median())
    planner = TrialPlanner(frame, "deadline", samples_left=needed * 100, deadline_s=100.0, max_trials=10)
    drive(planner)
    best = planner.best()
    assert rate(best) > 0.9 * needed
    cores = frame.workers * frame.worker_cpu + frame.ps * frame.ps_cpu
    cost = (cores / rates)[rates >= needed].min()
    assert (best["workers"] * best["worker_cpu"] + best["ps"] * best["ps_cpu"]) / rate(best) < 1.25 * cost


@given(st.integers(0, 10_000))
@settings(max_examples=8, deadline=None)
def test_same_seed_and_results_give_same_trials(seed: int) -> None:
    first, again = (TrialPlanner(grid(), seed=seed, max_trials=6) for _ in range(2))
    assert drive(first) == drive(again)
    assert first.best() == again.best()


def test_planner_is_done_when_all_candidates_are_measured() -> None:
    frame = grid(True).iloc[:4]
    planner = TrialPlanner(frame)
    assert len(drive(planner)) == 4
    assert planner.done()


def test_best_keeps_within_twice_the_measured_range() -> None:
    frame = pd.DataFrame({"workers": [1, 2, 3, 64], "ps": [1, 1, 1, 1]})
    planner = TrialPlanner(frame, "time")
    for workers in (1, 2, 3):
        planner.tell({"workers": workers, "ps": 1}, 100.0 * workers)
    assert planner.best()["workers"] == 3


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"workers": [1, 2]}), "lacks ps"),
        (pd.DataFrame({"workers": [], "ps": []}), "is empty"),
        (pd.DataFrame({"workers": [1, -2], "ps": [1, 1]}), "workers is -2"),
        (pd.DataFrame({"workers": [1, 2], "ps": [1, 1], "worker_cpu": [1.0, -1.0]}), "worker_cpu is -1"),
        (pd.DataFrame({"workers": [1, np.nan], "ps": [1, 1]}), "of the candidates lack workers"),
    ],
)
def test_invalid_candidates_are_refused(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrialPlanner(frame)


def test_invalid_results_and_objectives_are_refused() -> None:
    with pytest.raises(InputError, match=r"no objective 'speed'.*balanced"):
        TrialPlanner(grid(), "speed")
    planner = TrialPlanner(grid())
    allocation = planner.ask()
    assert allocation is not None
    for wrong in (float("inf"), -1.0):
        with pytest.raises(InputError, match="must be finite and at least 0"):
            planner.tell(allocation, wrong)
    with pytest.raises(InputError, match="lacks worker_cpu"):
        planner.tell({"workers": 1, "ps": 1}, 5.0)
    assert not len(planner.trials)


@pytest.mark.parametrize(
    ("change", "rate", "message"),
    [
        ({"workers": -3}, 5.0, "workers is -3"),
        ({"worker_cpu": -1.0}, 5.0, "worker_cpu is -1"),
        ({"batch_size": 64}, 5.0, "has batch_size, the candidates do not"),
        ({}, "fast", "throughput must be a number, got 'fast'"),
    ],
)
def test_refused_trial_leaves_the_planner_unchanged(change: dict[str, Any], rate: Any, message: str) -> None:
    planner = TrialPlanner(grid(), max_trials=6)
    allocation = planner.ask()
    assert allocation is not None
    with pytest.raises(InputError, match=message):
        planner.tell({**allocation, **change}, rate)
    assert planner.ask() == allocation
    assert len(drive(planner)) == 6


def test_further_columns_do_not_change_the_allocation() -> None:
    planner = TrialPlanner(grid().assign(batch_size=512))
    planner.tell(planner.ask() or {}, 5.0, batch_size=64, host_speed=1.0)
    assert planner.trials["batch_size"].tolist() == [512]
    assert planner.trials["host_speed"].tolist() == [1.0]


def test_job_shorter_than_a_trial_gets_one_trial() -> None:
    planner = TrialPlanner(grid(), "time", samples_left=1.0, trial_seconds=1000.0)
    assert len(drive(planner)) == 1


@pytest.mark.parametrize("prices", [{"core_hour": -1}, {"core": 1}, 5])
def test_invalid_prices_are_refused(prices: Any) -> None:
    with pytest.raises(InputError, match="prices must map core_hour"):
        TrialPlanner(grid(), prices=prices)


def test_candidates_of_any_dtype_are_converted_to_numbers() -> None:
    for frame in (grid().astype(str), grid().convert_dtypes(), grid().astype({"workers": float})):
        planner = TrialPlanner(frame, max_trials=6)
        asked = drive(planner)
        assert len({tuple(a.values()) for a in asked}) == len(asked) == 6
        assert planner.best() in grid().to_dict("records")


def test_candidate_that_succeeds_after_a_failure_can_be_recommended() -> None:
    planner = TrialPlanner(grid(True), "time", max_trials=20)
    top = {"workers": 8, "ps": 3}
    planner.tell(top, 0.0)
    for workers in (1, 4, 6):
        planner.tell({"workers": workers, "ps": 3}, rate({"workers": workers, "ps": 3}))
    planner.tell(top, rate(top), status=None)
    assert planner.best() == top


def test_planner_ends_after_eight_failures() -> None:
    planner = TrialPlanner(grid())
    count = 0
    while (allocation := planner.ask()) is not None:
        planner.tell(allocation, 0.0)
        count += 1
    assert count == 8


@pytest.mark.parametrize("name", ["samples_left", "trial_seconds", "deadline_s"])
def test_negative_quantities_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is -5"):
        TrialPlanner(grid(), **{name: -5})


def test_candidates_with_and_without_gpu_are_distinguished() -> None:
    frame = pd.DataFrame(itertools.product((1, 2, 4, 8), (0, 1)), columns=["workers", "worker_gpu"]).assign(ps=0)
    planner = TrialPlanner(frame, "time", max_trials=6)
    while (allocation := planner.ask()) is not None:
        planner.tell(allocation, allocation["workers"] * (150_000.0 if allocation["worker_gpu"] else 20_000.0))
    assert planner.best() == {"workers": 8, "worker_gpu": 1, "ps": 0}


@pytest.mark.parametrize("cells", [[1, 2.5], [1, None]])
def test_fractional_and_missing_counts_are_refused(cells: list[float]) -> None:
    with pytest.raises(InputError, match="workers"):
        TrialPlanner(pd.DataFrame({"workers": cells, "ps": 1}))


@pytest.mark.parametrize("good", [1, 3, 5])
@pytest.mark.parametrize("seconds", [None, 30.0])
def test_planner_ends_after_a_host_fails(good: int, seconds: float | None) -> None:
    planner = TrialPlanner(grid(), samples_left=1e12 if seconds else None, trial_seconds=seconds)
    count = 0
    while (allocation := planner.ask()) is not None:
        planner.tell(allocation, rate(allocation) if count < good else 0.0)
        count += 1
    assert count <= good + 8
    assert planner.best() in grid().to_dict("records")


def test_best_prefers_a_candidate_that_succeeded_once() -> None:
    planner = TrialPlanner(grid(True))
    planner.tell({"workers": 1, "ps": 1}, 0.0)
    for workers in (2, 4, 8):
        for throughput in (rate({"workers": workers, "ps": 2}), 0.0, 0.0):
            planner.tell({"workers": workers, "ps": 2}, throughput)
    assert planner.best() != {"workers": 1, "ps": 1}


def test_equal_allocations_of_other_types_are_the_same() -> None:
    planner = TrialPlanner(grid(True).assign(sync="sync"), max_trials=6)
    asked = []
    while (allocation := planner.ask()) is not None:
        asked.append(tuple(allocation.values()))
        spelled = {"workers": str(allocation["workers"]), "ps": float(allocation["ps"]), "sync": True}
        planner.tell(spelled, rate(allocation))
    assert len(set(asked)) == len(asked) == 6
    assert planner.best()["sync"] == "sync"


def test_trials_of_other_allocations_inform_the_candidates() -> None:
    planner = TrialPlanner(grid(True), "time", max_trials=20)
    for workers in (3, 5, 7, 10, 12):
        planner.tell({"workers": workers, "ps": 4}, rate({"workers": workers, "ps": 4}))
    assert planner.best()["workers"] >= 6
    assert planner.ask() is not None
    single = TrialPlanner(grid(True))
    single.tell({"workers": 3, "ps": 4}, 5.0)
    with pytest.raises(NotEnoughDataError, match="No candidate was measured"):
        single.best()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"batch_size": 512}, "batch_size is 512 but was different in earlier trials"),
        ({"worker_cpu": -1}, "worker_cpu is -1"),
        ({"host_speed": "fast"}, "host_speed is 'fast'|host_speed has a cell"),
    ],
)
def test_inconsistent_further_columns_are_refused(more: dict[str, Any], message: str) -> None:
    planner = TrialPlanner(grid(True), max_trials=5)
    planner.tell(planner.ask() or {}, 5.0, batch_size=256)
    with pytest.raises(InputError, match=message):
        planner.tell(planner.ask() or {}, 5.0, **more)
    assert len(drive(planner)) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"deadline_s": 10.0}, "deadline_s requires samples_left"),
        ({"deadline_s": np.inf, "samples_left": 1e6}, "deadline_s is inf"),
        ({"predictor": "dlrover"}, "'dlrover' is not a throughput model"),
        ({"max_trials": "3"}, "max_trials is '3'"),
        ({"max_trials": np.nan}, "max_trials is nan"),
        ({"samples_left": "10"}, "samples_left is '10'"),
        ({"seed": "x"}, "seed is 'x'"),
    ],
)
def test_invalid_arguments_are_refused_by_the_constructor(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrialPlanner(grid(), **arguments)


def test_candidates_must_be_a_table_with_unique_column_names() -> None:
    duplicate = pd.concat([grid(True), grid(True)["workers"]], axis=1)
    for wrong in (None, {"workers": [1], "ps": [1]}, duplicate):
        with pytest.raises(InputError, match="not a table with unique column names"):
            TrialPlanner(wrong)  # type: ignore[arg-type]


def test_gpus_raise_the_hourly_price() -> None:
    none, some = (TrialPlanner(grid(True).assign(worker_gpu=n)).goal.hourly_price for n in (0, 2))
    assert none == pytest.approx(grid(True).sum(axis=1))
    assert some != pytest.approx(none)
    with pytest.raises(InputError, match="worker_memory_bytes is -1"):
        TrialPlanner(grid(True).assign(worker_memory_bytes=-1))
