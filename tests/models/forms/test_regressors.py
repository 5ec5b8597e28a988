from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sizewright.models.forms.regressors import BoostedRegressor, SmoothRegressor


@parametrize_with_checks(
    [SmoothRegressor(restarts=0), SmoothRegressor(restarts=0, heavy_tails=True), BoostedRegressor(rounds=20)]
)
def test_regressors_pass_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_smooth_curve_and_its_noise_are_recovered() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, (80, 2))
    y = np.sin(x[:, 0]) + 0.05 * rng.standard_normal(80)
    model = SmoothRegressor().fit(x, y)
    assert model.noise_ == pytest.approx(0.05, rel=0.4)
    mean, deviation = model.moments(x)
    assert np.abs(mean - np.sin(x[:, 0])).max() < 0.1
    assert np.all(deviation >= model.noise_ * 0.99)


def test_heavy_tails_ignore_a_row_that_is_far_off() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, (60, 1))
    truth = np.sin(x[:, 0])
    y = truth + 0.02 * rng.standard_normal(60)
    y[7] += 1.0
    errors = [np.abs(SmoothRegressor(heavy_tails=t).fit(x, y).predict(x) - truth).max() for t in (True, False)]
    assert errors[0] < 0.05 < errors[1]


def test_thirty_rows_do_not_give_one_constant() -> None:
    x = np.linspace(0, 1, 30)[:, None]
    predicted = BoostedRegressor().fit(x, x[:, 0] ** 2).predict(x)
    assert np.ptp(predicted) > 0.8
