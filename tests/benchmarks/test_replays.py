from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks._baselines import baseline_planners, default_planner
from benchmarks._regret import SCORINGS, Truth, truths
from benchmarks._replays import extrapolation, paired, replay_planner, score_planner
from sizewright.models import get_model
from sizewright.models.forms.ernest import ErnestModel
from sizewright.profiler.evaluation import score_model, space_filling
from sizewright.profiler.planner.measured_table import one_table
from tests.helpers.measured_tables import measured_table, trial_table


class Constant(ErnestModel):
    """Predicts a narrow interval around a constant."""

    def predict_interval(self, X: Any, coverage: float = 0.9, kind: Any = "trial") -> tuple[Any, Any]:
        middle = np.full(len(X), 1500.0)
        return middle * 0.99, middle * 1.01


def test_regret_of_pick_matches_definition_of_each_scoring() -> None:
    truth = Truth(np.array([100.0, 85.0, 50.0, 0.0]), np.array([10.0, 4.0, 1.0, 1.0]))
    assert [truth.regret(i, "time") for i in range(4)] == pytest.approx([0.0, 0.15, 0.5, 1.0])
    assert truth.regret(0, "balanced") == pytest.approx((10 / 100**2) / (1 / 50**2) - 1)
    assert truth.regret(1, "reach80") == 0.0
    assert truth.regret(0, "reach80") == pytest.approx((10 / 100) / (4 / 85) - 1)
    assert truth.regret(2, "reach80") == pytest.approx(1 - 50 / 80)
    assert truth.regret(3, "balanced") == max(truth.regret(i, "balanced") for i in range(3)) > 1.0


@pytest.mark.parametrize("name", ["sizewright", *baseline_planners()])
def test_replay_of_every_planner_ends_with_a_pick(name: str) -> None:
    make = {"sizewright": default_planner, **baseline_planners()}[name]
    for objective in SCORINGS.values():
        done = replay_planner(make, measured_table(0.02, 2), objective, 6, seed=1)
        assert len(done.trials) == (0 if name in ("largest", "workers-x-cores") else 6)
        assert 0 <= done.pick < 15
    rows = score_planner(make, measured_table(), [0], 6)
    assert {row["scoring"] for row in rows} == set(SCORINGS)
    assert all(row["regret"] >= 0 and row["trials"] <= 6 for row in rows)


def test_regret_is_zero_after_all_trials_and_large_for_largest_allocation() -> None:
    all_of_it = score_planner(baseline_planners()["random"], measured_table(), [0], 15)
    assert max(row["regret_raw"] for row in all_of_it) < 0.005
    largest = score_planner(baseline_planners()["largest"], measured_table(), [0], 8)
    assert max(row["regret"] for row in largest) > 0.2


def test_failed_trials_are_replayed_as_failed() -> None:
    rows = trial_table().assign(status="ok")
    rows.loc[rows.workers == 7, ["throughput", "status"]] = [np.nan, "oom"]
    holed = one_table(rows, "holed")
    assert (truths(holed)["raw"].throughput == 0).sum() == 3
    for seed in range(3):
        done = replay_planner(default_planner, holed, "time", 10, seed)
        assert holed.allocations.iloc[done.pick].workers < 7
    assert score_model(lambda: get_model("default"), holed, space_filling(holed, 8, 0))["anywhere"] < 0.2


def test_extrapolation_covers_allocations_beyond_lower_half() -> None:
    table = measured_table(0.02, 3)
    assert np.mean([extrapolation(lambda: get_model("default"), table, seed) for seed in range(4)]) > 0.6
    assert extrapolation(Constant, measured_table(), 0) == 0.0
    assert extrapolation(lambda: get_model("default"), one_table(trial_table().query("ps == 1"), "line"), 0) is None


def test_paired_interval_is_that_of_differences() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(200)
    easier = hard + 0.1 + 0.01 * rng.standard_normal(200)
    mean, lower, upper = paired(easier, hard, range(200))
    assert mean == pytest.approx(0.1, abs=0.01)
    assert upper - lower < 0.01


def test_paired_interval_counts_replays_of_one_table_once() -> None:
    gaps = np.repeat([0.0, 0.1, 0.3, 0.4], 50)
    mean, lower, upper = paired(gaps, np.zeros(200), np.repeat(["a", "b", "c", "d"], 50))
    half = 3.182 * np.std([0.0, 0.1, 0.3, 0.4], ddof=1) / 2
    assert (mean, lower, upper) == pytest.approx((0.2, 0.2 - half, 0.2 + half), abs=1e-3)
    assert paired(gaps[:50], gaps[:50], ["a"] * 50)[2] == np.inf


def test_baselines_do_not_pick_allocations_that_failed() -> None:
    rows = trial_table().assign(status="ok")
    rows.loc[rows.workers > 2, ["throughput", "status"]] = [np.nan, "oom"]
    holed = one_table(rows, "holed")
    for name in ("gp-ei", "gp-ei-measured", "optimus", "random"):
        done = replay_planner(baseline_planners()[name], holed, "time", 12, 0)
        tried = {tuple(r) for r in done.trials.loc[~(done.trials.throughput > 0), ["workers", "ps"]].to_numpy()}
        assert tuple(holed.allocations.iloc[done.pick][["workers", "ps"]]) not in tried


@pytest.mark.parametrize("name", ["dlrover", "optimus"])
def test_models_of_ps_are_replayed_on_tables_with_allocations_without_ps(name: str) -> None:
    rows = pd.concat([trial_table(), trial_table().drop_duplicates("workers").assign(ps=0)], ignore_index=True)
    rows["ps_cpu"] = np.where(rows["ps"] > 0, 0.5 * rows["ps"], np.nan)
    for planner in (baseline_planners()[name], default_planner):
        assert 6 <= len(replay_planner(planner, one_table(rows, "both"), "time", 8, 0).trials) <= 8


def test_reach80_separates_picks_that_fall_short_from_the_excess_cost_of_the_others() -> None:
    truth = Truth(np.array([100.0, 85.0, 79.0, 90.0]), np.array([10.0, 5.0, 1.0, 8.0]))
    assert truth.reach80(1) == (False, 0.0)  # the cheapest that reaches 80
    short, excess = truth.reach80(0)
    assert not short
    assert excess == pytest.approx((10 / 100) / (5 / 85) - 1)
    short, excess = truth.reach80(2)
    assert short
    assert np.isnan(excess)
