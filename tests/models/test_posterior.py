from __future__ import annotations

import numpy as np
import pytest

from sizewright.models.posterior import Effort, sample


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_posterior_of_a_normal_mean_is_known(seed: int) -> None:
    """Prior N(0, 1) and N(3, 2), one measurement of each with error 0.5: conjugate (Gelman et al., BDA3, 2.5)."""
    measured, error = np.array([1.0, 0.0]), 0.5
    means, sds = np.array([0.0, 3.0]), np.array([1.0, 2.0])

    def log_likelihood(at: np.ndarray) -> np.ndarray:
        return -0.5 * (((at - measured) / error) ** 2).sum(axis=1)

    draws = sample(log_likelihood, means, sds, np.random.default_rng(seed), Effort(2000, 512, 200))
    precision = 1 / sds**2 + 1 / error**2
    want = (means / sds**2 + measured / error**2) / precision
    assert draws.mean(axis=0) == pytest.approx(want, abs=0.12)
    assert draws.std(axis=0) == pytest.approx(precision**-0.5, rel=0.2)


def test_without_evidence_it_is_the_prior() -> None:
    draws = sample(lambda at: np.zeros(len(at)), np.full(5, 2.0), np.full(5, 3.0), np.random.default_rng(0))
    assert draws.mean(axis=0) == pytest.approx(np.full(5, 2.0), abs=1.2)
    assert draws.std(axis=0) == pytest.approx(np.full(5, 3.0), rel=0.35)


def test_two_narrow_peaks_are_both_kept() -> None:
    def log_likelihood(at: np.ndarray) -> np.ndarray:
        return np.logaddexp(-0.5 * ((at[:, 0] - 1) / 0.05) ** 2, -0.5 * ((at[:, 0] + 1) / 0.05) ** 2)

    draws = sample(log_likelihood, np.zeros(1), np.ones(1), np.random.default_rng(0))[:, 0]
    assert 0.2 < np.mean(draws > 0) < 0.8
    assert np.abs(np.abs(draws) - 1).max() < 0.3
