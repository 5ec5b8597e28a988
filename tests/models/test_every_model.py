"""What holds for every throughput model, whatever it is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import queueing
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils.validation import check_is_fitted

from sizewright.datasets.trials import Trial
from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models import ThroughputModel, get_model, model_names

AXES = ["workers", "ps", "worker_cpu", "ps_cpu", "batch_size"]
NAMES = model_names()


def measured(name: str, noise: float = 0.02) -> pd.DataFrame:
    """Trials of a kind that the model takes, with phases."""
    table = queueing.table(noise, seed=1)
    if name == "allreduce":
        return table[table["ps"] == 1].assign(ps=0)
    return queueing.with_phases(table)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_is_known_by_its_name(name: str) -> None:
    assert get_model(name).name == name
    assert NAMES[0] == "default"
    assert type(get_model("default")) is ThroughputModel


def test_it_learns_and_its_intervals_hold_its_predictions(name: str) -> None:
    table = measured(name)
    model = get_model(name).fit(table.sample(24, random_state=0) if name != "allreduce" else table)
    predicted = model.predict(table)
    assert predicted.shape == (len(table),)
    assert np.median(np.abs(predicted / table["throughput"] - 1)) < 0.5
    for kind in ("trial", "mean"):
        lower, upper = model.predict_interval(table, 0.9, kind)
        assert np.all((lower > 0) & (lower <= predicted * 1.000001) & (predicted <= upper * 1.000001))
    of_trial, of_mean = (np.subtract(*model.predict_interval(table, 0.9, k)[::-1]) for k in ("trial", "mean"))
    assert np.all(of_mean <= of_trial * 1.000001)
    middle, lower, upper = model.predict_with_interval(table, 0.8)
    assert np.array_equal(middle, predicted)
    assert np.array_equal(lower, model.predict_interval(table, 0.8)[0])


def test_it_is_a_scikit_learn_estimator(name: str) -> None:
    table = measured(name)
    model = get_model(name)
    assert model.set_params(**model.get_params()) is model
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    with pytest.raises(NotFittedError):
        model.predict(table)
    check_is_fitted(model.fit(table))
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(model))
    folds = KFold(3, shuffle=True, random_state=0)
    assert cross_val_predict(model, table, table["throughput"], cv=folds).shape == (len(table),)


def test_the_same_trials_teach_the_same(name: str) -> None:
    table = measured(name)
    first = get_model(name).fit(table).predict(table)
    rows: list[Any] = [Trial.model_validate(row) for row in table.to_dict("records")]
    assert np.allclose(get_model(name).fit(rows).predict(table), first)
    assert np.allclose(get_model(name).fit({c: table[c].to_numpy() for c in table}).predict(table), first)
    bad = table.iloc[:3].assign(status="failed", throughput=9e9)
    assert np.allclose(get_model(name).fit(pd.concat([table, bad])).predict(table), first)


def test_its_account_names_every_parameter(name: str) -> None:
    account = get_model(name).fit(measured(name)).explain()
    assert account.model == name
    assert account.enough
    assert account.distinct_allocations >= account.needed
    assert set(account.pinned) <= set(account.parameters)
    assert np.isfinite(list(account.parameters.values())).all()


def test_nothing_is_learned_from_nothing_or_from_nonsense(name: str) -> None:
    with pytest.raises(InputError):
        get_model(name).fit({"workers": [1, 2], "ps": [1, 1]}, [0.0, np.nan])
    table = measured(name)
    for wrong in (np.inf, -1.0):
        with pytest.raises(InputError, match="infinite or negative"):
            get_model(name).fit(table, np.r_[wrong, table["throughput"][1:]])


def test_two_trials_or_one_over_and_over_are_not_enough(name: str) -> None:
    table = measured(name)
    for few in (table.iloc[:2], pd.concat([table.iloc[:1]] * 5), pd.concat([table.iloc[:2]] * 4)):
        with pytest.raises(NotEnoughDataError):
            get_model(name).fit(few)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"worker_cpu": -1.0}, "worker_cpu is -1"),
        ({"workers": 0}, "workers is 0"),
        ({"sync": "BSP"}, "sync is 'BSP'"),
        ({"batch_size": np.inf}, "batch_size is inf"),
    ],
)
def test_allocations_that_are_none_are_refused(name: str, change: dict[str, Any], told: str) -> None:
    table = measured(name)
    with pytest.raises(InputError, match=told):
        get_model(name).fit(table.assign(**change))
    with pytest.raises(InputError, match=told):
        get_model(name).fit(table).predict(table.assign(**change))


def test_what_the_trials_differ_in_must_be_told(name: str) -> None:
    table = measured(name)
    model = get_model(name).fit(table)
    with pytest.raises(InputError, match="worker_cpu"):
        model.predict(table.drop(columns="worker_cpu"))
    assert np.allclose(model.predict(table.drop(columns="batch_size")), model.predict(table))
    assert model.predict(table.iloc[:0]).shape == (0,)


def test_modes_may_be_words_or_truths(name: str) -> None:
    table = measured(name).assign(
        sync=["sync", "async"] * (len(measured(name)) // 2) + ["sync"] * (len(measured(name)) % 2)
    )
    told = get_model(name).fit(table).predict(table)
    missing = table.assign(sync=[pd.NA if mode == "async" else mode for mode in table["sync"]])
    assert np.isfinite(get_model(name).fit(missing).predict(table)).all()
    for truths in (table["sync"] == "sync", (table["sync"] == "sync").to_numpy()):
        columns = {c: table[c].to_numpy() for c in table} | {"sync": truths}
        assert np.allclose(get_model(name).fit(columns).predict(columns), told)


def test_odd_input_is_refused(name: str) -> None:
    table = measured(name)
    rates = table["throughput"].to_numpy()
    with pytest.raises(InputError, match="named columns"):
        get_model(name).fit(table[AXES].to_numpy(), rates)
    for odd in (["fast"] * len(table), rates[:, None], rates[:3]):
        with pytest.raises(InputError, match="throughput"):
            get_model(name).fit(table, odd)
    model = get_model(name).fit(table)
    uneven = {column: table[column].to_numpy() for column in AXES} | {"ps": [1]}
    for none in (None, "allocations", 5, table[AXES].to_numpy(), uneven):
        with pytest.raises(InputError, match=r"named columns|have 1 to"):
            model.predict(none)
    with pytest.raises(InputError, match="must be 0 or 1"):
        get_model(name).fit(table.assign(sync=7))
    for options in ({"coverage": 1.5}, {"kind": "mode"}):
        with pytest.raises(InputError):
            model.predict_interval(table, **options)


def test_one_allocation_by_itself_is_a_table_of_one_row(name: str) -> None:
    table = measured(name)
    model = get_model(name).fit(table)
    want = model.predict(table)[0]
    for one in (table.iloc[0], table.iloc[0].to_dict(), [table.iloc[0].to_dict()]):
        assert model.predict(one) == pytest.approx([want])


def test_a_name_that_is_none_is_told_those_that_are() -> None:
    with pytest.raises(InputError, match=r"no throughput model 'oracle'.*default"):
        get_model("oracle")


def test_phases_are_needed_for_phases() -> None:
    with pytest.raises(InputError, match="tell their phases"):
        get_model("phases").fit(queueing.table())
    steps = measured("phases").drop(columns="batch_size")  # seconds of a step tell nothing of samples
    with pytest.raises(InputError, match="tell their phases"):
        get_model("phases").fit(steps)
