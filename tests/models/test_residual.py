"""Against scikit-learn's Gaussian process, and paths against the moments they are drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from sizewright.models.residual import LENGTH, ResidualProcess, Scales, matern

RNG = np.random.default_rng(0)
PLACES, AT = RNG.uniform(0, 4, (9, 3)), RNG.uniform(0, 5, (6, 3))
VALUES = 5 + np.sin(PLACES[:, 0]) + 0.05 * RNG.standard_normal(9)
TAU, SIGMA = np.array([0.8, 0.3]), np.array([0.05, 0.2])
WIDE = 1e3  # a level with so wide a prior is as good as flat


def peer(i: int) -> GaussianProcessRegressor:
    kernel = TAU[i] ** 2 * Matern(LENGTH, nu=1.5) + ConstantKernel(WIDE**2) + WhiteKernel(SIGMA[i] ** 2)
    return GaussianProcessRegressor(kernel, optimizer=None).fit(PLACES, VALUES)


def test_the_kernel_is_matern() -> None:
    assert matern(PLACES, AT) == pytest.approx(Matern(LENGTH, nu=1.5)(PLACES, AT))


@pytest.mark.parametrize("i", [0, 1])
def test_moments_are_those_of_scikit_learn(i: int) -> None:
    process, residuals = ResidualProcess(PLACES), np.tile(VALUES, (2, 1))
    mean, variance = process.moments(residuals, Scales(TAU, SIGMA), AT)
    want, deviation = peer(i).predict(AT, return_std=True)
    assert mean[i] == pytest.approx(want, abs=1e-3)
    assert variance[i] + SIGMA[i] ** 2 == pytest.approx(deviation**2, rel=1e-2)


def test_likelihoods_differ_as_scikit_learns_do() -> None:
    told = ResidualProcess(PLACES).log_likelihood(np.tile(VALUES, (2, 1)), Scales(TAU, SIGMA))
    want = [peer(i).log_marginal_likelihood_value_ for i in (0, 1)]
    assert told[0] - told[1] == pytest.approx(want[0] - want[1], abs=1e-3)


def test_paths_have_the_moments() -> None:
    process, count = ResidualProcess(PLACES), 400
    scales = Scales(np.full(count, TAU[0]), np.full(count, SIGMA[0]))
    residuals = np.tile(VALUES, (count, 1))
    paths = np.concatenate([process.paths(residuals, scales, AT, np.random.default_rng(s)) for s in range(10)])
    mean, variance = process.moments(residuals[:1], Scales(TAU[:1], SIGMA[:1]), AT)
    assert paths.mean(axis=0) == pytest.approx(mean[0], abs=0.08)
    assert paths.std(axis=0) == pytest.approx(np.sqrt(variance[0]), rel=0.2)
