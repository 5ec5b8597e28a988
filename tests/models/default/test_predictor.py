from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models import ThroughputModel
from sizewright.testing import queueing

AXES = ["workers", "ps", "worker_cpu", "ps_cpu", "batch_size"]


def some(table: pd.DataFrame, count: int, seed: int = 0) -> pd.DataFrame:
    return table.sample(count, random_state=seed)


@pytest.mark.parametrize(
    "kind", [{}, {"service": 2e-5}, {"fixed": 2e-2}, {"call": 2e-3, "service": 1e-6}, {"per_sample": 2e-6}]
)
def test_twelve_trials_predict_a_queueing_network(kind: dict[str, float]) -> None:
    truth = queueing.table(**kind)
    errors, covered = [], []
    for seed in range(3):
        trials = some(queueing.table(0.02, seed, **kind), 12, seed)
        model = ThroughputModel(seed=seed).fit(trials, trials["throughput"])
        errors.append(np.median(np.abs(model.predict(truth[AXES]) / truth["throughput"] - 1)))
        lower, upper = model.predict_interval(truth[AXES], 0.9, kind="mean")
        covered.append(np.mean((lower <= truth["throughput"]) & (truth["throughput"] <= upper)))
    assert np.mean(errors) < 0.1
    assert np.mean(covered) > 0.8


def test_throughput_bends_where_the_servers_are_busy() -> None:
    """Measured up to 5 workers, most of them free; 12 are predicted within the interval, and far below 12/5 of it."""
    truth = queueing.table(service=1e-5).query("ps == 1 and worker_cpu == 4 and ps_cpu == 0.5")
    trials = queueing.table(0.01, service=1e-5).query("workers <= 5 and ps <= 2")
    model = ThroughputModel().fit(trials, trials["throughput"])
    twelve = truth.query("workers == 12")
    lower, upper = model.predict_interval(twelve[AXES])
    assert lower[0] <= twelve["throughput"].iloc[0] <= upper[0]
    five = model.predict(truth.query("workers == 5")[AXES])[0]
    assert model.predict(twelve[AXES])[0] < 1.5 * five


def test_three_trials_give_wide_intervals_and_more_narrow_them() -> None:
    table = queueing.table(0.02)
    widths = []
    for count in (3, 8, 30):
        trials = some(table, count)
        lower, upper = ThroughputModel().fit(trials, trials["throughput"]).predict_interval(table[AXES])
        widths.append(np.median(np.log(upper / lower)))
    assert widths[0] > widths[1] > widths[2]
    assert widths[0] > np.log(1.3)
    assert widths[2] < np.log(1.5)


def test_the_interval_of_the_curve_lies_within_that_of_a_trial() -> None:
    table = queueing.table(0.05)
    trials = some(table, 20)
    model = ThroughputModel().fit(trials, trials["throughput"])
    lower, upper = model.predict_interval(table[AXES])
    low, high = model.predict_interval(table[AXES], kind="mean")
    assert np.all((lower < low) & (high < upper))
    wide = model.predict_interval(table[AXES], 0.99)
    assert np.all((wide[0] < lower) & (upper < wide[1]))


def test_repeats_determine_the_noise() -> None:
    table = queueing.table()
    for noise in (0.01, 0.15):
        rng = np.random.default_rng(0)
        repeated = pd.concat([some(table, 8)] * 4)
        rates = repeated["throughput"] * rng.lognormal(0, noise, len(repeated))
        model = ThroughputModel().fit(repeated, rates)
        estimate = np.exp(np.median(model.draws_[:, -1]))
        assert noise / 1.6 < estimate < noise * 1.6


def test_synchronous_training_with_a_fixed_total_batch_may_fall() -> None:
    workers = np.array([1, 2, 3, 4, 6, 8, 12, 16])
    batch = 4096 // workers
    rates = 4096 / (batch * 1e-5 + 2e-3 + 1e-3 * workers)
    assert np.argmax(rates) < 6
    table = pd.DataFrame({"workers": workers, "ps": 1, "batch_size": batch, "sync": "sync", "throughput": rates})
    model = ThroughputModel().fit(table.iloc[[0, 1, 3, 5, 7]])
    assert np.abs(model.predict(table) / rates - 1).max() < 0.12
    assert model.predict(table)[-1] < model.predict(table).max()


@pytest.mark.parametrize("column", ["workers", "ps", "batch_size", "worker_gpu"])
def test_one_varying_column_is_enough(column: str) -> None:
    values = np.array([1, 2, 4, 8, 16])
    table = pd.DataFrame({"workers": 4, "ps": 2, "batch_size": 64, "worker_gpu": 1}, index=range(5))
    table[column] = values
    rates = 1000.0 * values**0.7
    model = ThroughputModel().fit(table, rates)
    assert np.abs(model.predict(table) / rates - 1).max() < 0.15


def test_gpus_are_workers_and_batch_size() -> None:
    axes = [(w, b) for w in (1, 2, 4, 8) for b in (256, 1024, 4096)]
    table = pd.DataFrame(axes, columns=["workers", "batch_size"]).assign(ps=0, worker_gpu=1)
    rates = table.workers * table.batch_size / (5e-3 + 1e-6 * table.batch_size + 1e-3 * table.workers)
    model = ThroughputModel().fit(table.iloc[::2], rates[::2])
    assert np.median(np.abs(model.predict(table) / rates - 1)) < 0.06


def test_failed_trials_are_ignored() -> None:
    table = some(queueing.table(), 12)
    bad = table.assign(throughput=[0.0, np.nan] * 6, status="failed")
    without_failed = ThroughputModel().fit(table)
    with_failed = ThroughputModel().fit(pd.concat([table.assign(status="ok"), bad]))
    assert np.allclose(without_failed.predict(table), with_failed.predict(table))


def test_host_speed_is_corrected_if_repeats_show_it() -> None:
    rng = np.random.default_rng(3)
    table = pd.concat([some(queueing.table(), 8)] * 3)
    speed = rng.uniform(0.7, 1.1, len(table))
    slowed = table.assign(throughput=table["throughput"] * speed, host_speed=speed)
    model = ThroughputModel().fit(slowed)
    assert model.speed_exponent_ == pytest.approx(1.0, abs=0.1)
    unrelated = table.assign(throughput=table["throughput"] * rng.lognormal(0, 0.02, len(table)), host_speed=speed)
    assert ThroughputModel().fit(unrelated).speed_exponent_ < 0.1


def test_phases_improve_predictions_from_few_trials() -> None:
    """Few noisy trials, all with one PS; their phases say how busy it was."""
    table = queueing.table()
    errors: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(6):
        few = table[(table.ps == 1) & (table.workers <= 4)].sample(8, random_state=seed)
        noisy = few.assign(throughput=few.throughput * np.random.default_rng(seed).lognormal(0, 0.08, len(few)))
        for phased in errors:
            model = ThroughputModel().fit(queueing.with_phases(noisy) if phased else noisy)
            errors[phased].append(float(np.median(np.abs(np.log(model.predict(table) / table.throughput)))))
    assert np.mean(errors[True]) < 0.9 * np.mean(errors[False])


def test_explain_pins_undetermined_parameters() -> None:
    workers = pd.DataFrame({"workers": [1, 2, 3, 4, 6, 8], "ps": 1, "worker_cpu": 1.0, "ps_cpu": 1.0})
    rates = 100 * workers.workers / (1 + 0.05 * workers.workers**2)
    account = ThroughputModel().fit(workers, rates).explain()
    assert account.enough
    assert {"even", "service_cores", "serial", "service_size"} <= set(account.pinned)
    assert account.parameters.keys() == account.equations.keys()
    saturated = queueing.table(0.01, service=2e-5)
    assert "service" not in ThroughputModel().fit(saturated).explain().pinned


@given(st.integers(0, 1000), st.integers(3, 9))
@settings(max_examples=10, deadline=None)
def test_order_of_trials_and_allocations_does_not_matter(seed: int, count: int) -> None:
    table = queueing.table(0.05, seed)
    trials = some(table, count, seed)
    at = some(table, 10, seed + 1)[AXES]
    model = ThroughputModel().fit(trials)
    assert np.allclose(model.predict(at)[::-1], model.predict(at.iloc[::-1]))
    lower, upper = model.predict_interval(at)
    assert np.all((lower > 0) & (lower < model.predict(at)) & (model.predict(at) < upper) & np.isfinite(upper))


BAD = {
    "two trials": ({"workers": [1, 2], "ps": [1, 1]}, [1.0, 2.0], "2 distinct allocations are too few for a curve"),
    "identical": ({"workers": [2] * 5, "ps": [1] * 5}, [1.0] * 5, "1 distinct allocation are"),
    "all failed": ({"workers": [1, 2, 3], "ps": [1] * 3}, [0.0, np.nan, 0.0], "None of 3 trials succeeded"),
    "none": ({"workers": [], "ps": []}, [], "None of 0 trials"),
}


@pytest.mark.parametrize("name", BAD)
def test_too_few_trials_are_refused(name: str) -> None:
    table, rates, message = BAD[name]
    with pytest.raises(NotEnoughDataError, match=message):
        ThroughputModel().fit(table, rates)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"throughput": [1.0, np.inf, 2.0]}, "infinite or negative"),
        ({"throughput": [1.0, -5.0, 2.0]}, "infinite or negative"),
        ({"worker_cpu": [1.0, -1.0, 2.0]}, "worker_cpu is -1 in 1 row"),
        ({"workers": [0, 1, 2]}, "workers is 0 in 1 row"),
        ({"workers": [1, np.nan, 2]}, "rows have no workers"),
        ({"batch_size": [1, np.inf, 2]}, "batch_size is inf"),
        ({"worker_cpu": ["a", "b", "c"]}, "not a number"),
    ],
)
def test_invalid_trials_are_refused(change: dict[str, list[float]], message: str) -> None:
    table = pd.DataFrame({"workers": [1, 2, 3], "ps": [1, 1, 1], "throughput": [1.0, 2.0, 3.0]}).assign(**change)
    with pytest.raises(InputError, match=message):
        ThroughputModel().fit(table)


def test_allocations_that_do_not_fit_the_trials_are_refused() -> None:
    trials = some(queueing.table(), 8)
    model = ThroughputModel().fit(trials)
    with pytest.raises(InputError, match="trials have worker_cpu"):
        model.predict(trials[["workers", "ps"]])
    counts = ThroughputModel().fit(trials[["workers", "ps"]], trials["throughput"])
    with pytest.raises(InputError, match="differ in worker_cpu, which no trial has"):
        counts.predict(trials[AXES])
    with pytest.raises(InputError, match="ps_cpu is -1"):
        model.predict(trials.assign(ps_cpu=-1.0))


def test_one_allocation_at_several_table_sizes_is_one() -> None:
    table = pd.DataFrame({"workers": 2, "ps": 1, "embedding_bytes": [1e9, 2.5e8, 6e7]}, index=range(3))
    with pytest.raises(NotEnoughDataError, match="1 distinct"):
        ThroughputModel().fit(table, [10.0, 11.0, 12.0])


def test_no_ps_and_one_ps_are_distinguished() -> None:
    table = pd.DataFrame({"workers": [1, 2, 4, 1, 2, 4], "ps": [0, 0, 0, 1, 1, 1]})
    rates = np.array([200.0, 390.0, 750.0, 600.0, 1150.0, 2200.0])
    assert ThroughputModel().fit(table, rates).predict(table) == pytest.approx(rates, rel=0.25)
