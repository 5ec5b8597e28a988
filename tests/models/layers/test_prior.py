from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models import ThroughputModel
from sizewright.models.factory import make_predictor
from sizewright.models.prior import JobCurve, LearnedPrior

GRID = pd.DataFrame(
    [(w, p, wc, pc) for w in (1, 2, 4) for p in (1, 3) for wc in (0.1, 0.4) for pc in (0.1, 0.3)],
    columns=["workers", "ps", "worker_cpu", "ps_cpu"],
)


@pytest.fixture(scope="module")
def curve(made_bank: Bank) -> JobCurve:
    job = next(b for b in made_bank.jobs.values() if b.job.name == "criteo-dlrm-a")
    rest = {key: b for key, b in made_bank.jobs.items() if b.base != "criteo-dlrm"}
    return LearnedPrior.fit([t for t in made_bank.trials if t.job_hash in rest], rest).curve(job.job)


def trials(curve: JobCurve, rows: list[int], factor: float = 1.0) -> pd.DataFrame:
    some = GRID.iloc[rows].reset_index(drop=True)
    return some.assign(throughput=factor * np.exp(curve.log_rates(some)), batch_size=curve.job.training.batch_size)


def test_prediction_without_trials_is_the_curve_of_the_prior(curve: JobCurve) -> None:
    model = make_predictor(curve)
    assert model.predict(GRID) == pytest.approx(np.exp(curve.log_rates(GRID)))
    low, high = model.predict_interval(GRID)
    assert (low < model.predict(GRID)).all()
    assert (model.predict(GRID) < high).all()
    inner = model.predict_interval(GRID, kind="mean")
    assert (inner[0] > low).all()
    assert (inner[1] < high).all()
    account = model.explain()
    assert account.enough
    assert account.distinct_allocations == 0
    with pytest.raises(InputError):
        model.predict_interval(GRID, coverage=2)


def test_curves_vary_as_the_interval(curve: JobCurve) -> None:
    curves = make_predictor(curve).curves(GRID, 128, np.random.default_rng(0))
    assert curves.shape == (128, len(GRID))
    ratio = np.log(curves).std(axis=0) / curve.sd(GRID, trial=False)
    assert 0.7 < ratio.mean() < 1.2
    correlation = np.corrcoef(np.log(curves[:, 0]), np.log(curves[:, 1]))[0, 1]
    assert correlation > 0.5


def test_curves_vary_as_the_interval_outside_the_measured_ranges(curve: JobCurve) -> None:
    far = pd.DataFrame({"workers": [30.0], "ps": [12.0], "worker_cpu": [4.0], "ps_cpu": [2.0]})
    curves = make_predictor(curve).curves(far, 128, np.random.default_rng(0))
    assert 0.8 < np.log(curves).std() / curve.sd(far, trial=False)[0] < 1.2


def test_one_trial_sets_the_level_and_prior_the_shape(curve: JobCurve) -> None:
    model = ThroughputModel(prior_curve=curve).fit(trials(curve, [5], factor=1.5))
    error = np.log(model.predict(GRID.assign(batch_size=512))) - curve.log_rates(GRID) - np.log(1.5)
    assert np.median(np.abs(error)) < 0.12
    assert model.explain().enough


def test_many_trials_outvote_a_wrong_prior(curve: JobCurve) -> None:
    rows = list(range(0, len(GRID), 1))
    truth = GRID.assign(throughput=5000 * GRID.workers**0.3, batch_size=512)
    model = ThroughputModel(prior_curve=curve).fit(truth.iloc[rows])
    assert np.median(np.abs(model.predict(truth) / truth.throughput - 1)) < 0.1


def test_two_trials_with_a_prior_predict_better_than_without(curve: JobCurve) -> None:
    few = trials(curve, [0, 23])
    with_it = ThroughputModel(prior_curve=curve).fit(few)
    without = ThroughputModel(min_allocations=1).fit(few)
    at, truth = GRID.assign(batch_size=512), np.exp(curve.log_rates(GRID))
    errors = [np.median(np.abs(model.predict(at) / truth - 1)) for model in (with_it, without)]
    assert errors[0] < errors[1]
    widths = [np.subtract(*reversed(np.log(model.predict_interval(at)))).mean() for model in (with_it, without)]
    assert widths[0] < widths[1]


def test_default_model_without_trials_is_refused(curve: JobCurve) -> None:
    with pytest.raises(NotEnoughDataError):
        ThroughputModel(prior_curve=curve).fit(trials(curve, [3]).assign(status="failed"))
