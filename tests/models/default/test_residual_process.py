"""The process agrees with scikit-learn's, its paths with its moments, and pooling of repeats changes neither.

Its lengths follow the likelihood, and an allocation that all others contradict weighs less.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from sizewright.models import ThroughputModel
from sizewright.models.axes import prepare_training_data
from sizewright.models.default.residual_process import (
    ResidualProcess,
    ResidualScales,
    pool_repeats,
    prior_lengths,
)
from sizewright.models.matern import LENGTH, matern
from sizewright.testing import queueing

RNG = np.random.default_rng(0)
PLACES, AT = RNG.uniform(0, 4, (9, 3)), RNG.uniform(0, 5, (6, 3))
VALUES = 5 + np.sin(PLACES[:, 0]) + 0.05 * RNG.standard_normal(9)
LENGTHS = np.array([[LENGTH, LENGTH, LENGTH], [0.5, 3.0, 1.0]])
"""Vectors of lengths per axis: of the draws below, each has its own."""
TAU, SIGMA = np.array([0.8, 0.3]), np.array([0.05, 0.2])
REPEAT_RNG = np.random.default_rng(0)
WIDE = 1e3  # a level with so wide a prior is as good as flat


def reference(i: int) -> GaussianProcessRegressor:
    kernel = TAU[i] ** 2 * Matern(LENGTHS[i], nu=1.5) + ConstantKernel(WIDE**2) + WhiteKernel(SIGMA[i] ** 2)
    return GaussianProcessRegressor(kernel, optimizer=None).fit(PLACES, VALUES)


def test_the_kernel_is_matern() -> None:
    assert matern(PLACES, AT) == pytest.approx(Matern(LENGTH, nu=1.5)(PLACES, AT))


@pytest.mark.parametrize("i", [0, 1])
def test_moments_are_those_of_scikit_learn(i: int) -> None:
    process, residuals = ResidualProcess(PLACES, lengths=LENGTHS), np.tile(VALUES, (2, 1))
    mean, variance = process.moments(residuals, ResidualScales(TAU, SIGMA), np.array([0, 1]), AT)
    expected, deviation = reference(i).predict(AT, return_std=True)
    assert mean[i] == pytest.approx(expected, abs=1e-3)
    assert variance[i] + SIGMA[i] ** 2 == pytest.approx(deviation**2, rel=1e-2)


def test_log_likelihoods_differ_as_those_of_scikit_learn() -> None:
    scales = [ResidualScales(TAU[i : i + 1], SIGMA[i : i + 1]) for i in (0, 1)]
    actual = [
        ResidualProcess(PLACES, lengths=LENGTHS[i : i + 1]).log_likelihood(VALUES[None], scales[i])[0] for i in (0, 1)
    ]
    expected = [reference(i).log_marginal_likelihood_value_ for i in (0, 1)]
    assert actual[0] - actual[1] == pytest.approx(expected[0] - expected[1], abs=1e-3)


def test_the_likelihood_is_the_mean_over_the_lengths() -> None:
    scales = ResidualScales(TAU, SIGMA)
    residuals = np.tile(VALUES, (2, 1))
    each = [ResidualProcess(PLACES, lengths=one[None]).log_likelihood(residuals, scales) for one in LENGTHS]
    both = ResidualProcess(PLACES, lengths=LENGTHS).log_likelihood(residuals, scales)
    assert np.exp(both) == pytest.approx(np.exp(each).mean(axis=0), rel=1e-6)


def test_lengths_are_drawn_by_their_likelihood() -> None:
    """A function of the first axis alone needs a short length there, and long ones elsewhere."""
    places = np.random.default_rng(1).uniform(0, 4, (40, 2))
    values = np.tile(np.sin(2 * places[:, 0]), (200, 1))
    process = ResidualProcess(places)
    scales = ResidualScales(np.full(200, 0.7), np.full(200, 0.02))
    chosen = prior_lengths(2)[process.draw_lengths(values, scales, np.random.default_rng(0))]
    assert np.median(chosen[:, 0]) < 1.6 < np.median(chosen[:, 1])


def test_an_allocation_that_all_others_contradict_weighs_less() -> None:
    places = np.linspace(0, 3, 9)[:, None]
    values = np.sin(places[:, 0])
    values[4] += 0.5
    process = ResidualProcess(places, lengths=np.array([[2.0]]))
    scales = ResidualScales(np.full(20, 0.5), np.full(20, 0.03))
    weights = process.tail_weights(np.tile(values, (20, 1)), scales, np.zeros(20, int))
    assert weights[4] < 0.5
    assert (np.delete(weights, 4) == 1).all()


def test_paths_have_the_moments() -> None:
    process, count = ResidualProcess(PLACES, lengths=LENGTHS), 400
    lengths = np.zeros(count, int)
    scales = ResidualScales(np.full(count, TAU[0]), np.full(count, SIGMA[0]))
    residuals = np.tile(VALUES, (count, 1))
    paths = np.concatenate([process.paths(residuals, scales, lengths, AT, np.random.default_rng(s)) for s in range(10)])
    mean, variance = process.moments(residuals[:1], ResidualScales(TAU[:1], SIGMA[:1]), lengths[:1], AT)
    assert paths.mean(axis=0) == pytest.approx(mean[0], abs=0.08)
    assert paths.std(axis=0) == pytest.approx(np.sqrt(variance[0]), rel=0.2)


def repeated(times: int) -> pd.DataFrame:
    table = pd.concat([queueing.table().iloc[::4]] * times, ignore_index=True)
    return table.assign(throughput=table["throughput"] * REPEAT_RNG.lognormal(0, 0.05, len(table)))


def test_pooled_repeats_have_the_likelihood_and_moments_of_all_trials() -> None:
    trials = prepare_training_data(repeated(3))
    rates, draws = np.log(trials.throughput), 40
    rates = rates - rates.mean()
    places, at = np.column_stack(trials.axes[:4]), REPEAT_RNG.uniform(0, 2, (5, 4))
    scales = ResidualScales(REPEAT_RNG.uniform(0.05, 0.5, draws), REPEAT_RNG.uniform(0.01, 0.2, draws))
    pooled = pool_repeats(trials.axes, rates)
    assert pooled.counts.tolist() == [3.0] * (len(rates) // 3)
    all_trials, distinct = ResidualProcess(places), ResidualProcess(places[pooled.rows], pooled.counts)
    expected = all_trials.log_likelihood(np.tile(rates, (draws, 1)), scales)
    actual = distinct.log_likelihood(np.tile(pooled.rates, (draws, 1)), scales) + pooled.log_likelihood(scales.noise)
    assert np.ptp(actual - expected) == pytest.approx(0.0, abs=1e-3)
    lengths = np.arange(draws) % 32
    for a, b in zip(
        all_trials.moments(np.tile(rates, (draws, 1)), scales, lengths, at),
        distinct.moments(np.tile(pooled.rates, (draws, 1)), scales, lengths, at),
        strict=True,
    ):
        assert a == pytest.approx(b, abs=1e-4)


def test_many_repeats_of_few_allocations_narrow_the_interval() -> None:
    few, many = repeated(1), repeated(80)
    narrow, wide = (
        np.log(np.divide(*ThroughputModel().fit(table).predict_interval(few, kind="mean")[::-1])).mean()
        for table in (many, few)
    )
    assert len(many) > 500
    assert narrow < wide / 2
