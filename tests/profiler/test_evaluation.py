from __future__ import annotations

import numpy as np
import pytest

from sizewright.errors import InputError
from sizewright.models import get_model
from sizewright.profiler.evaluation import compare_models, latin_hypercube, score_model, space_filling
from sizewright.profiler.planner.measured_table import one_table
from tests.helpers.measured_tables import measured_table, trial_table


def test_score_of_model_has_errors_and_coverage() -> None:
    table = measured_table(0.02, 3)
    scores = score_model(lambda: get_model("default"), table, space_filling(table, 9, 0))
    assert scores["near"] < 0.1
    assert scores["anywhere"] < 0.1
    assert 0.6 <= scores["coverage"] <= 1.0
    assert scores["interval_score"] > 0
    few = score_model(lambda: get_model("default"), measured_table(), space_filling(measured_table(), 2, 0))
    assert np.isnan(few["anywhere"])


def test_compare_models_returns_row_per_table_and_model() -> None:
    rows = compare_models([measured_table(0.01, 2)], ["default", "optimus", "phases"], trials=8, seeds=range(2))
    assert [row["model"] for row in rows] == ["default", "optimus", "phases"]
    assert rows[0]["fitted"] == 1.0
    assert rows[0]["anywhere"] < 0.2
    assert rows[2] == {
        "table": "made", "model": "phases", "near": None, "anywhere": None, "coverage": None,
        "interval_score": None, "fitted": 0.0,
    }  # fmt: skip


def test_compare_models_with_too_few_allocations_raises() -> None:
    small = one_table(trial_table().head(6), "small")
    [row] = compare_models([small], ["default"], trials=8, seeds=range(2))
    assert row["fitted"] == 1.0
    with pytest.raises(InputError, match="small has 5 allocations"):
        compare_models([one_table(trial_table().head(5), "small")], ["default"])


def test_latin_hypercube_takes_no_point_twice() -> None:
    points = np.random.default_rng(0).random((12, 2))
    assert sorted(latin_hypercube(points, 12, 0)) == list(range(12))
