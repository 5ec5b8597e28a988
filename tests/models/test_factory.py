"""The factory's stack: a prior before any trial, a ceiling for commands, and models of users."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.models import ThroughputModel
from sizewright.models.factory import make_predictor, validated
from sizewright.models.layers.ceiling import CeilingModel
from sizewright.models.layers.loading import LoadingModel
from sizewright.models.prior import LearnedPrior
from sizewright.spec import Job
from sizewright.testing import queueing

TRIALS = queueing.sample_trials()
NO_TRIALS = TRIALS.iloc[:0]


def test_default_model_needs_trials_only_without_a_prior() -> None:
    curve = LearnedPrior.load().curve(Job())
    with pytest.raises(NotEnoughDataError):
        make_predictor().fit(NO_TRIALS)
    assert make_predictor().min_trials == 3
    model = make_predictor(curve)
    assert model.min_trials == 0
    assert model.prior_ranges == curve.ranges
    assert model.fit(NO_TRIALS).name == "prior"
    assert model.predict(TRIALS) == pytest.approx(np.exp(curve.log_rates(TRIALS)))
    assert model.fit(TRIALS).name == "default"
    assert model.predict(TRIALS) == pytest.approx(ThroughputModel(prior_curve=curve).fit(TRIALS).predict(TRIALS))
    assert model.fit(NO_TRIALS).name == "prior", "what was learned before is forgotten"


def test_command_gets_a_ceiling_and_loaders() -> None:
    model = make_predictor(may_be_input_bound=True)
    assert isinstance(model, LoadingModel)
    assert isinstance(model.base, CeilingModel)


@pytest.mark.parametrize("name", ["default", "dlrover", "gp", "usl"])
def test_every_model_draws_curves_within_its_interval_and_knows_its_support(name: str) -> None:
    model = validated(name).fit(TRIALS)
    curves = model.curves(TRIALS, 100, np.random.default_rng(0))
    assert curves.shape[1] == len(TRIALS)
    assert 1 <= len(curves) <= 100
    lower, upper = model.predict_interval(TRIALS, 0.9, "mean")
    assert 0.75 < np.mean((lower <= curves) & (curves <= upper)) < 0.99
    assert (model.support(TRIALS) == 0).all()
    far = TRIALS.assign(workers=8 * TRIALS.workers.max())
    assert model.support(far) == pytest.approx(np.log(8), abs=1e-9)


def test_curves_deviate_alike_at_nearby_allocations() -> None:
    model = validated("dlrover").fit(TRIALS)
    near = pd.DataFrame([TRIALS.iloc[0], TRIALS.iloc[0]]).assign(worker_cpu=[1.0, 1.05])
    deviations = np.log(model.curves(near, 200, np.random.default_rng(0)))
    assert np.corrcoef(deviations.T)[0, 1] > 0.95


def test_trials_of_one_run_are_expected_to_differ_by_less() -> None:
    within_run = make_predictor().within_run().fit(TRIALS)
    across_runs = make_predictor().fit(TRIALS)
    width = [np.log(np.divide(*reversed(model.predict_interval(TRIALS)))).mean() for model in (within_run, across_runs)]
    assert width[0] < width[1]


def test_invalid_curves_are_refused() -> None:
    class Negative(ThroughputModel):
        def curves(self, X: pd.DataFrame, count: int, rng: np.random.Generator) -> np.ndarray:
            return -super().curves(X, count, rng)

    with pytest.raises(InputError, match="negative"):
        validated(Negative()).fit(TRIALS).curves(TRIALS, 10, np.random.default_rng(0))
