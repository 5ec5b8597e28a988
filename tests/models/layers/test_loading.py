"""Known answers of jobs whose workers are fed by loaders: the rate of a loader and of training are found again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.models.factory import make_predictor
from sizewright.models.layers.loading import LoadingModel

LOADER, TRAIN_S, LOAD_S = 1000.0, 0.5e-3, 1e-3
"""Samples/s of a loader, and CPU seconds that training and loading of a sample take."""
BATCH = 500


def measured(workers: int, cores: float, loaders: int, noise: float = 0.0, seed: int = 0) -> Trial:
    """Return the trial of a worker that trains 4,000 samples/s without waiting, if it has cores and data enough."""
    training = min(4000.0, cores / (TRAIN_S + LOAD_S))
    rate = min(training, loaders * LOADER) if loaders else 1 / (1 / training + 1 / LOADER)
    rate *= float(np.exp(noise * np.random.default_rng([seed, workers, loaders, int(10 * cores)]).standard_normal()))
    step_s, compute_s = BATCH / rate, BATCH / training
    return Trial(
        workers=workers, ps=0, worker_cpu=cores, batch_size=BATCH, loaders=loaders, throughput=workers * rate,
        throughput_se=0.005 * workers * rate, phase_data_s=max(0.0, step_s - compute_s) or None,
        phase_compute_s=min(step_s, compute_s), worker_cpu_used=rate * (TRAIN_S + LOAD_S),
        loader_cpu_used=rate * LOAD_S if loaders else 0.0, host="h", limited_by="cgroup", sync="sync", duration_s=10.0,
    )  # fmt: skip


def fitted(points: Sequence[tuple[int, float, int]], noise: float = 0.01) -> LoadingModel:
    model = make_predictor(may_be_input_bound=True)
    assert isinstance(model, LoadingModel)
    return model.fit([measured(*point, noise=noise) for point in points])


POINTS = [(1, 8.0, 1), (1, 8.0, 2), (2, 8.0, 1), (1, 8.0, 8), (2, 8.0, 8), (4, 8.0, 1)]


def columns(rows: Sequence[tuple[int, float, int]]) -> dict[str, Any]:
    workers, cores, loaders = np.array(rows, float).T
    one = np.ones(len(rows))
    return {"workers": workers, "ps": 0 * one, "worker_cpu": cores, "batch_size": BATCH * one, "loaders": loaders}


def test_rate_of_a_loader_is_found() -> None:
    loading = fitted(POINTS).loading_
    assert loading is not None
    assert loading.delivered(np.array([float(BATCH)]), np.ones(1))[0] == pytest.approx(LOADER, rel=0.03)
    assert loading.cpu_s == pytest.approx(LOAD_S, rel=0.03)


@pytest.mark.parametrize("loaders", [1, 2, 3, 6, 8])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_unmeasured_numbers_of_loaders_are_predicted(workers: int, loaders: int) -> None:
    rate = float(fitted(POINTS).predict(columns([(workers, 8.0, loaders)]))[0])
    truth = measured(workers, 8.0, loaders).throughput
    assert truth is not None
    assert rate == pytest.approx(truth, rel=0.12)


def test_interval_holds_and_curves_agree() -> None:
    model, rows = fitted(POINTS), columns([(w, 8.0, n) for w, n in itertools.product((1, 2, 4), (1, 2, 3, 6))])
    rates, lower, upper = model.predict_with_interval(rows)
    pairs = zip(rows["workers"], rows["loaders"], strict=True)
    truth = np.array([measured(int(workers), 8.0, int(loaders)).throughput for workers, loaders in pairs])
    assert ((lower <= truth * 1.02) & (truth <= upper * 1.02)).mean() >= 0.9
    assert ((lower < rates) & (rates < upper)).all()
    curves = model.curves(rows, 200, np.random.default_rng(0))
    assert np.exp(np.log(curves).mean(axis=0)) == pytest.approx(rates, rel=0.1)


def test_more_loaders_never_slow_a_job_down() -> None:
    rates = fitted(POINTS).predict(columns([(2, 8.0, loaders) for loaders in range(1, 17)]))
    assert (np.diff(rates) >= -1e-9).all()


def test_worker_that_loads_itself_takes_turns() -> None:
    model = fitted([(1, 8.0, 0), (2, 8.0, 0), (1, 8.0, 2), (1, 8.0, 8), (4, 8.0, 8)])
    assert model.predict(columns([(4, 8.0, 0)]))[0] == pytest.approx(measured(4, 8.0, 0).throughput, rel=0.15)


def test_worker_without_idle_cores_is_not_taken_for_one_without_loaders() -> None:
    points = [(1, 1.0, 1), (1, 1.0, 8), (2, 1.0, 4), (1, 3.0, 8), (2, 3.0, 8), (1, 6.0, 8)]
    rates = fitted(points).predict(columns([(1, 1.0, 2), (1, 1.0, 8)]))
    assert rates == pytest.approx(measured(1, 1.0, 8).throughput, rel=0.15)


def test_loaders_that_were_never_too_few_are_not_called_too_few() -> None:
    model = fitted([(1, 4.0, 4), (2, 4.0, 4), (4, 4.0, 4), (1, 2.0, 4)])
    rows = columns([(1, 4.0, 4), (4, 4.0, 4)])
    assert (model.loading_rates(rows) >= 0.99 * model.training_rates(rows)).all()


def test_trials_without_loaders_are_left_to_the_base() -> None:
    trials = [measured(*point).model_copy(update={"loaders": None}) for point in POINTS]
    model = make_predictor(may_be_input_bound=True)
    assert isinstance(model, LoadingModel)
    model.fit(trials)
    rows = columns(POINTS)
    assert model.loading_ is None
    assert model.predict(rows) == pytest.approx(model.base_.predict(rows))
    assert np.isinf(model.loading_rates(rows)).all()


def test_loaders_take_time_for_each_batch_too() -> None:
    def trial(batch: int, loaders: int) -> Trial:
        rate = min(loaders * batch / (0.02 + 1e-4 * batch), 1e5)
        base = {"workers": 1, "ps": 0, "worker_cpu": 8.0, "worker_cpu_used": 2.0, "throughput": rate}
        data_s = batch / rate - batch / 1e5
        return Trial(**base, batch_size=batch, loaders=loaders, phase_data_s=data_s, phase_compute_s=batch / 1e5)

    model = make_predictor(may_be_input_bound=True).fit([trial(m, n) for m in (100, 200, 400) for n in (1, 2)])
    rows = columns([(1, 8.0, 3)]) | {"batch_size": np.array([1600.0])}
    assert model.predict(rows)[0] == pytest.approx(3 * 1600 / (0.02 + 0.16), rel=0.1)


def handed_over(workers: int, cores: float, batch: int, loaders: int, **fields: Any) -> Trial:
    """Return a trial whose worker computes 4 core ms a batch, and takes it over in 0.6 core ms, or loads it in 0.3.

    Its loaders compute for a tenth of their time.
    """
    compute_s, data_s = 4e-3 / cores, (0.6e-3 if loaders else 0.3e-3) / cores
    shown: dict[str, Any] = {
        "workers": workers, "ps": 0, "worker_cpu": cores, "worker_cpu_used": 0.8 * cores, "batch_size": batch,
        "loaders": loaders, "loader_cpu_used": 0.1 * loaders, "throughput": workers * batch / (compute_s + data_s),
        "phase_data_s": data_s, "phase_compute_s": compute_s, "duration_s": 10.0,
    }  # fmt: skip
    return Trial(**shown | fields)


def test_time_to_take_a_batch_over_is_no_lack_of_loaders() -> None:
    points = [(1, 0.5, 64, 0), (2, 0.5, 64, 1), (1, 0.5, 256, 1), (2, 1.0, 256, 0), (1, 1.0, 64, 1), (2, 1.0, 64, 0)]
    trials = [handed_over(*point) for point in points]
    model = make_predictor(may_be_input_bound=True).fit(trials)
    assert isinstance(model, LoadingModel)
    rows = [handed_over(1, 1.0, 256, loaders).model_copy(update={"throughput": None}) for loaders in (0, 1, 4)]
    alone, one, four = model.predict(rows)
    assert alone / one == pytest.approx(4.6 / 4.3, rel=0.03)
    assert four == pytest.approx(one, rel=0.01)
    assert one == pytest.approx(256 / 4.6e-3, rel=0.15)


@pytest.mark.parametrize("limit", [{"worker_cpu_used": 0.99}, {"throttled_s": 3.0}])
def test_loaders_deliver_at_least_what_a_worker_at_its_limit_of_cores_trained(limit: dict[str, float]) -> None:
    slow = {"throughput": 64 / 10e-3, "phase_data_s": 4e-3, "phase_compute_s": 6e-3}
    waits = handed_over(1, 1.0, 64, 1, **slow)
    trained = handed_over(1, 1.0, 512, 1, throughput=512 / 12e-3, phase_data_s=2e-3, phase_compute_s=10e-3, **limit)
    model = make_predictor(may_be_input_bound=True).fit([waits, trained, handed_over(1, 0.5, 512, 0)])
    assert isinstance(model, LoadingModel)
    assert model.loading_rates([waits, trained]) == pytest.approx([64 / 10e-3, 512 / 12e-3], rel=0.05)
