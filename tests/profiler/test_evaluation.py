from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sizewright.datasets.trials.files import export_trials
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.models import get_model
from sizewright.models.forms.ernest import ErnestModel
from sizewright.profiler.baselines import baseline_planners, default_planner, latin_hypercube
from sizewright.profiler.evaluation import (
    compare_models,
    extrapolation,
    paired,
    replay_planner,
    score_model,
    score_planner,
    space_filling,
)
from sizewright.profiler.planner.measured_table import (
    MeasuredTable,
    one_table,
    read_tables,
    split_tables,
    without_noise,
)
from sizewright.profiler.regret import SCORINGS, Truth, truths


def frame(noise: float = 0.0, repeats: int = 1, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    axes = itertools.product((1, 2, 3, 5, 7), (1, 2, 3), range(repeats))
    rows = [(w, p, 1000 * w / (1 + 0.1 * w * w / p) * rng.lognormal(0, noise)) for w, p, _ in axes]
    return pd.DataFrame(rows, columns=["workers", "ps", "throughput"])


class Constant(ErnestModel):
    """Knows the middle of what it saw, and is sure of it."""

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Any = "trial") -> tuple[Any, Any]:
        middle = np.full(len(X), 1500.0)
        return middle * 0.99, middle * 1.01


def table(noise: float = 0.0, repeats: int = 1) -> MeasuredTable:
    return one_table(frame(noise, repeats), "made")


def test_the_noise_is_estimated_and_taken_out() -> None:
    clean = table().raw
    found = [table(0.05, 3).smoothed, table(0.0).smoothed]
    assert found[0][1] == pytest.approx(0.05, rel=0.5)
    assert found[1][1] < 0.02
    assert np.median(np.abs(found[0][0] / clean - 1)) < np.median(np.abs(table(0.05, 3).raw / clean - 1)) * 1.2
    assert found[1][0] == pytest.approx(clean, rel=0.02)


def test_a_quiet_table_is_its_smoothed_self() -> None:
    rows = frame(0.05, 3).assign(status="ok")
    rows.loc[rows.workers == 7, ["throughput", "status"]] = [np.nan, "oom"]
    noisy = one_table(rows, "made")
    calm = without_noise(noisy)
    assert calm.raw == pytest.approx(noisy.smoothed[0])
    assert [len(m) for m in calm.measurements] == [1] * 12 + [0] * 3


def test_regret_is_what_a_pick_loses() -> None:
    truth = Truth(np.array([100.0, 85.0, 50.0, 0.0]), np.array([10.0, 4.0, 1.0, 1.0]))
    assert [truth.regret(i, "time") for i in range(4)] == pytest.approx([0.0, 0.15, 0.5, 1.0])
    assert truth.regret(0, "balanced") == pytest.approx((10 / 100**2) / (1 / 50**2) - 1)
    assert truth.regret(1, "reach80") == 0.0
    assert truth.regret(0, "reach80") == pytest.approx((10 / 100) / (4 / 85) - 1)
    assert truth.regret(2, "reach80") == pytest.approx(1 - 50 / 80)
    assert truth.regret(3, "balanced") == max(truth.regret(i, "balanced") for i in range(3)) > 1.0


@pytest.mark.parametrize("name", ["sizewright", *baseline_planners()])
def test_every_planner_can_be_replayed(name: str) -> None:
    make = {"sizewright": default_planner, **baseline_planners()}[name]
    for objective in SCORINGS.values():
        done = replay_planner(make, table(0.02, 2), objective, 6, seed=1)
        assert len(done.trials) == (0 if name in ("largest", "workers-x-cores") else 6)
        assert 0 <= done.pick < 15
    rows = score_planner(make, table(), [0], 6)
    assert {row["scoring"] for row in rows} == set(SCORINGS)
    assert all(row["regret"] >= 0 and row["trials"] <= 6 for row in rows)


def test_a_planner_that_tries_all_loses_nothing_and_the_largest_much() -> None:
    all_of_it = score_planner(baseline_planners()["random"], table(), [0], 15)
    assert max(row["regret_raw"] for row in all_of_it) < 0.005
    largest = score_planner(baseline_planners()["largest"], table(), [0], 8)
    assert max(row["regret"] for row in largest) > 0.2


def test_failed_trials_are_replayed_as_failed() -> None:
    rows = frame().assign(status="ok")
    rows.loc[rows.workers == 7, ["throughput", "status"]] = [np.nan, "oom"]
    holed = one_table(rows, "holed")
    assert (truths(holed)["raw"].throughput == 0).sum() == 3
    for seed in range(3):
        done = replay_planner(default_planner, holed, "time", 10, seed)
        assert holed.allocations.iloc[done.pick].workers < 7
    assert score_model(lambda: get_model("default"), holed, space_filling(holed, 8, 0))["anywhere"] < 0.2


def test_errors_and_coverage_of_a_model() -> None:
    told = score_model(lambda: get_model("default"), table(0.02, 3), space_filling(table(0.02, 3), 9, 0))
    assert told["near"] < 0.1
    assert told["anywhere"] < 0.1
    assert 0.6 <= told["coverage"] <= 1.0
    assert told["interval_score"] > 0
    few = score_model(lambda: get_model("default"), table(), space_filling(table(), 2, 0))
    assert np.isnan(few["anywhere"])


def test_extrapolation_looks_beyond_the_lower_half() -> None:
    assert np.mean([extrapolation(lambda: get_model("default"), table(0.02, 3), seed) for seed in range(4)]) > 0.6
    assert extrapolation(Constant, table(), 0) == 0.0
    assert extrapolation(lambda: get_model("default"), one_table(frame().query("ps == 1"), "line"), 0) is None


def test_models_are_compared_table_by_table() -> None:
    rows = compare_models([table(0.01, 2)], ["default", "optimus", "phases"], trials=8, seeds=range(2))
    assert [row["model"] for row in rows] == ["default", "optimus", "phases"]
    assert rows[0]["fitted"] == 1.0
    assert rows[0]["anywhere"] < 0.2
    assert rows[2] == {
        "table": "made", "model": "phases", "near": None, "anywhere": None, "coverage": None,
        "interval_score": None, "fitted": 0.0,
    }  # fmt: skip


def test_paired_intervals_are_of_the_differences() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(200)
    easier = hard + 0.1 + 0.01 * rng.standard_normal(200)
    mean, lower, upper = paired(easier, hard, range(200))
    assert mean == pytest.approx(0.1, abs=0.01)
    assert upper - lower < 0.01


def test_replays_of_one_table_count_as_one() -> None:
    gaps = np.repeat([0.0, 0.1, 0.3, 0.4], 50)
    mean, lower, upper = paired(gaps, np.zeros(200), np.repeat(["a", "b", "c", "d"], 50))
    half = 3.182 * np.std([0.0, 0.1, 0.3, 0.4], ddof=1) / 2
    assert (mean, lower, upper) == pytest.approx((0.2, 0.2 - half, 0.2 + half), abs=1e-3)
    assert paired(gaps[:50], gaps[:50], ["a"] * 50)[2] == np.inf


def test_a_latin_hypercube_takes_no_place_twice() -> None:
    places = np.random.default_rng(0).random((12, 2))
    assert sorted(latin_hypercube(places, 12, 0)) == list(range(12))


def test_a_file_is_split_into_jobs_modes_and_batches(tmp_path) -> None:  # type: ignore[no-untyped-def]
    parts = [
        frame().assign(job=job, sync=sync, batch_size=batch)
        for job, sync, batch in [("a", "async", 16), ("a", "sync", 16), ("b", "async", 16), ("b", "async", 256)]
    ]
    tables = split_tables(pd.concat(parts), "many")
    assert sorted(t.name for t in tables) == [
        "many-a-async-16",
        "many-a-sync-16",
        "many-b-async-16",
        "many-b-async-256",
    ]
    assert all(len(t) == 15 for t in tables)
    export_trials([Trial.model_validate(row) for row in parts[0].to_dict("records")], tmp_path / "one.csv")
    assert len(read_tables([tmp_path / "one.csv"])[0]) == 15
    total = frame().assign(batch_size=lambda f: 420 // f.workers)
    assert [t.name for t in split_tables(total, "total")] == ["total"]


def test_a_throughput_that_is_missing_is_a_failure(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rows = frame()
    rows.loc[rows.workers == 7, "throughput"] = np.nan
    rows.to_csv(tmp_path / "holed.csv", index=False)
    [holed] = read_tables([tmp_path / "holed.csv"])
    assert (holed.raw == 0).sum() == 3


def test_too_few_allocations_to_compare_is_said() -> None:
    small = one_table(frame().head(6), "small")
    [row] = compare_models([small], ["default"], trials=8, seeds=range(2))
    assert row["fitted"] == 1.0
    with pytest.raises(InputError, match="small has 5 allocations"):
        compare_models([one_table(frame().head(5), "small")], ["default"])


def test_baselines_do_not_take_what_they_saw_fail() -> None:
    rows = frame().assign(status="ok")
    rows.loc[rows.workers > 2, ["throughput", "status"]] = [np.nan, "oom"]
    holed = one_table(rows, "holed")
    for name in ("gp-ei", "gp-ei-measured", "optimus", "random"):
        done = replay_planner(baseline_planners()[name], holed, "time", 12, 0)
        tried = {tuple(r) for r in done.trials.loc[~(done.trials.throughput > 0), ["workers", "ps"]].to_numpy()}
        assert tuple(holed.allocations.iloc[done.pick][["workers", "ps"]]) not in tried


def test_a_table_that_tells_cores_in_some_rows_only_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "half.csv"
    frame().assign(worker_cpu=[1.0] * 5 + [None] * 10).to_csv(path, index=False)
    with pytest.raises(InputError, match="Table half: 10 of the candidates lack worker_cpu"):
        read_tables([path])


@pytest.mark.parametrize("name", ["dlrover", "optimus"])
def test_models_of_ps_are_replayed_where_some_allocations_have_none(name: str) -> None:
    rows = pd.concat([frame(), frame().drop_duplicates("workers").assign(ps=0)], ignore_index=True)
    rows["ps_cpu"] = np.where(rows["ps"] > 0, 0.5 * rows["ps"], np.nan)
    for planner in (baseline_planners()[name], default_planner):
        assert 6 <= len(replay_planner(planner, one_table(rows, "both"), "time", 8, 0).trials) <= 8


def test_a_table_that_is_too_small_is_said_to_be(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "small.csv"
    frame().head(4).assign(extra="x").to_csv(path, index=False)
    with pytest.raises(InputError, match="6 distinct allocations"):
        read_tables([path])
