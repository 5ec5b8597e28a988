from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.utils.validation import check_is_fitted

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.models.forms.dlrover import EQUATIONS, DlroverModel
from sizewright.models.forms.linear_time import find_excited
from sizewright.models.table import AXES, as_columns, successful
from sizewright.spec import Allocation
from tests.helpers.dlrover_form import KNOWN, allocations, measured, throughput

NOISE = 0.03


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in rows[0]}


@pytest.mark.parametrize("left_out", [(), ("compute",), ("update", "table_size"), ("beta", "look_up")])
def test_known_coefficients_are_recovered_and_unseen_allocations_predicted(left_out: tuple[str, ...]) -> None:
    truth = KNOWN | dict.fromkeys(left_out, 0.0)
    rows = measured(40, coefficients=truth)
    model = DlroverModel().fit(columns(rows))
    assert model.explain().parameters == pytest.approx(truth, rel=1e-6, abs=1e-12)
    unseen = [row for row in allocations(400, seed=1) if row not in allocations(40)]
    predicted = model.predict(columns(unseen))
    assert predicted == pytest.approx([throughput(row, truth) for row in unseen], rel=1e-6)
    lower, upper = model.predict_interval(columns(unseen))
    assert lower == pytest.approx(predicted, rel=1e-4)
    assert upper == pytest.approx(predicted, rel=1e-4)


def test_90_percent_interval_covers_about_90_percent_of_new_measurements() -> None:
    rng = np.random.default_rng(0)
    unseen = allocations(10, seed=2)
    within = {0.5: 0.0, 0.9: 0.0}
    repeats = 150
    for repeat in range(repeats):
        rows = measured(16, seed=repeat + 10)
        noisy = [row | {"throughput": row["throughput"] * rng.lognormal(0, NOISE)} for row in rows]
        model = DlroverModel().fit(columns(noisy))
        new = [throughput(row) * rng.lognormal(0, NOISE) for row in unseen]
        for coverage in within:
            lower, upper = model.predict_interval(columns(unseen), coverage)
            within[coverage] += float(np.mean((lower <= new) & (new <= upper))) / repeats
    assert 0.86 <= within[0.9] <= 0.95
    assert 0.43 <= within[0.5] <= 0.58


def test_intervals_are_nested_and_widen_away_from_the_data() -> None:
    rng = np.random.default_rng(1)
    rows = [row | {"throughput": row["throughput"] * rng.lognormal(0, NOISE)} for row in measured(20)]
    model = DlroverModel().fit(columns(rows))
    inside = columns([rows[0]])
    outside = inside | {"workers": [200]}

    def width(table: Any, coverage: float) -> float:
        lower, upper = model.predict_interval(table, coverage)
        return float(np.log(upper / lower)[0])

    assert 0 < width(inside, 0.5) < width(inside, 0.9) < width(inside, 0.99)
    assert width(inside, 0.9) < width(outside, 0.9)


def test_the_interval_is_never_narrower_than_the_trials_claim_for_themselves() -> None:
    rows = [row | {"throughput_se": 0.05 * row["throughput"]} for row in measured(30)]
    lower, upper = DlroverModel().fit(columns(rows)).predict_interval(columns(rows), 0.9)
    assert np.all(np.log(upper / lower) / 2 >= 1.64 * 0.05)


@pytest.mark.parametrize(
    ("fixed", "pinned"),
    [
        ({"worker_cpu": 1.0, "batch_size": 512}, {"compute"}),
        ({"ps": 2, "batch_size": 512}, {"look_up"}),
        ({"ps_cpu": 0.5}, {"synchronisation"}),
        ({"embedding_bytes": 0}, {"table_size"}),
        (
            {"ps": 1, "worker_cpu": 1, "ps_cpu": 1, "batch_size": 512},
            {"compute", "synchronisation", "look_up"},
        ),
    ],
)
def test_a_term_without_variation_is_pinned_and_named(fixed: dict[str, float], pinned: set[str]) -> None:
    rows = measured(40, **fixed)
    account = DlroverModel().fit(columns(rows)).explain()
    assert set(account.pinned) == pinned
    assert {account.parameters[name] for name in pinned} <= {0.0}
    assert account.equations.keys() == account.parameters.keys()


def test_enough_takes_two_more_distinct_allocations_than_excited_terms() -> None:
    rows = measured(12)
    for count in range(3, 12):
        account = DlroverModel().fit(columns(rows[:count] * 3)).explain()
        excited = len(EQUATIONS) - len(account.pinned)
        assert account.distinct_allocations == count
        assert account.needed == excited + 2
        assert account.enough == (count >= excited + 2)
    assert account.enough


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_only_independent_columns_are_excited(independent: int, copies: int, seed: int) -> None:
    terms = np.random.default_rng(seed).random((12, independent))
    again = terms @ np.random.default_rng(seed + 1).random((independent, copies))
    assert find_excited(np.hstack([terms, again, np.zeros((12, 1))])).tolist() == [True] * independent + [False] * (
        copies + 1
    )


BAD = [
    {"throughput": 0.0},
    {"throughput": None},
    {"throughput": None, "status": "failed"},
    {"throughput": 9e9, "status": "void"},
    {"throughput": 9e9, "status": "oom"},
    {"throughput": 9e9, "ps": 0},
]


def test_fit_is_independent_of_table_type_and_failed_trials() -> None:
    rows = [row | {"status": "ok"} for row in measured(20)]
    bad = [rows[i] | change for i, change in enumerate(BAD)]
    every = bad + rows
    frame = pd.DataFrame(every)
    clean = DlroverModel().fit(columns(rows)).explain()
    assert DlroverModel().fit(frame).explain() == clean
    assert DlroverModel().fit(columns(every)).explain() == clean
    assert DlroverModel().fit([Trial.model_validate(row) for row in every]).explain() == clean
    assert DlroverModel().fit(every).explain() == clean
    assert DlroverModel().fit(frame.drop(columns="throughput"), frame["throughput"]).explain() == clean


def test_predictions_are_the_same_for_every_kind_of_table() -> None:
    rows = measured(30, embedding_bytes=10**8)
    model = DlroverModel().fit(columns(rows))
    want = model.predict(columns(rows))
    assert np.array_equal(model.predict(pd.DataFrame(rows)), want)
    assert np.array_equal(model.predict([Trial.model_validate(row) for row in rows]), want)


def test_allocation_records_are_accepted_as_rows() -> None:
    got = as_columns([Allocation.of(3, 2, 0.5, 0.25, 128)])
    assert {name: column[0] for name, column in got.items() if name != "embedding_bytes"} == {
        "workers": 3, "ps": 2, "worker_cpu": 0.5, "ps_cpu": 0.25, "batch_size": 128,
    }  # fmt: skip
    assert np.isnan(got["embedding_bytes"][0])


def test_columns_of_any_number_type_are_accepted() -> None:
    rows = [{"workers": np.int64(3), "ps": np.float32(2), "worker_cpu": None}]
    got = as_columns(rows, ("workers", "ps", "worker_cpu", "batch_size"))
    assert (got["workers"][0], got["ps"][0]) == (3, 2)
    assert np.isnan([got["worker_cpu"][0], got["batch_size"][0]]).all()
    nullable = pd.DataFrame({"workers": pd.array([1, None], dtype="Int64")})
    assert np.array_equal(as_columns(nullable, ("workers",))["workers"], [1, np.nan], equal_nan=True)
    assert successful(pd.DataFrame({"status": ["ok", None, np.nan, "void"]})).tolist() == [True, True, True, False]


def test_three_columns_are_enough_to_fit() -> None:
    rows = [(w, p, 100 * w / (1 + 0.1 * w / p)) for w in (1, 2, 4) for p in (1, 2)]
    table = pd.DataFrame(rows, columns=["workers", "ps", "throughput"])
    model = DlroverModel().fit(table)
    assert model.explain().enough
    assert model.predict(table) == pytest.approx(table["throughput"].to_numpy(), rel=1e-6)


@given(
    seed=st.integers(0, 10**6),
    noise=st.floats(0, 1),
    count=st.integers(5, 20),
    at=st.lists(st.tuples(*[st.floats(1, 500)] * 2, *[st.floats(0.05, 500)] * 4), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_predictions_and_intervals_are_positive_and_in_order(
    seed: int, noise: float, count: int, at: list[tuple[float, ...]]
) -> None:
    rng = np.random.default_rng(seed)
    rows = [row | {"throughput": row["throughput"] * rng.lognormal(0, noise)} for row in measured(count, seed)]
    model = DlroverModel().fit(columns(rows))
    table = dict(zip(AXES, np.array(at).T, strict=True))
    lower, upper = model.predict_interval(table)
    predicted = model.predict(table)
    assert np.all((lower > 0) & (lower <= predicted) & (predicted <= upper) & np.isfinite(upper))


def test_dlrover_is_a_scikit_learn_estimator() -> None:
    frame = pd.DataFrame(measured(40))
    model = DlroverModel()
    assert model.set_params(**model.get_params()) is model
    with pytest.raises(ValueError, match="no parameter 'depth'"):
        model.set_params(depth=3)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    check_is_fitted(model.fit(frame))
    fresh = clone(model)
    assert type(fresh) is DlroverModel
    with pytest.raises(NotFittedError):
        check_is_fitted(fresh)
    folds = KFold(5, shuffle=True, random_state=0)
    assert cross_val_score(model, frame, frame["throughput"], cv=folds) == pytest.approx(np.zeros(5), abs=1e-6)
    predicted = cross_val_predict(model, frame, frame["throughput"], cv=folds)
    assert predicted == pytest.approx(frame["throughput"].to_numpy(), rel=1e-6)


def test_the_score_is_minus_the_median_relative_error() -> None:
    frame = pd.DataFrame(measured(30))
    model = DlroverModel().fit(frame)
    assert model.score(frame, frame["throughput"] * 2) == pytest.approx(-0.5)


@pytest.mark.parametrize("ask", ["predict", "predict_interval"])
def test_unfitted_model_raises_not_fitted_error(ask: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(DlroverModel(), ask)({"workers": [1], "ps": [1]})
    with pytest.raises(NotFittedError, match="not fitted yet"):
        DlroverModel().explain()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "None of 0 trials"),
        ({"workers": [1], "ps": [1], "throughput": [0]}, "None of 1 trial "),
        ({"throughput": [5.0]}, "rows have no workers"),
        (
            {"workers": [1, 2, 3], "ps": [0, 0, 0], "throughput": [5.0] * 3},
            "0 distinct allocations with",
        ),
    ],
)
def test_fit_without_usable_trials_is_refused(table: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DlroverModel().fit(table)
