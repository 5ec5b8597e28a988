"""Run the contract of models, and fit data with known parameters: pytest test_contract.py"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sizewright_powerlaw import PowerLawModel

from sizewright.testing import ModelContract


class TestPowerLaw(ModelContract):
    @pytest.fixture
    def model(self) -> PowerLawModel:
        return PowerLawModel()


def trials(noise: float, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame([(w, p) for w in (1, 2, 4, 8) for p in (1, 2, 4)], columns=["workers", "ps"])
    rates = 1000 * table["workers"] ** 0.8 * table["ps"] ** 0.1 * rng.lognormal(0, noise, len(table))
    return table.assign(throughput=rates)


def test_powers_of_noiseless_trials_are_recovered() -> None:
    parameters = PowerLawModel().fit(trials(0.0)).explain().parameters
    assert parameters == pytest.approx({"scale": np.log(1000), "workers": 0.8, "ps": 0.1})


def test_intervals_of_90_percent_cover_90_percent_of_new_trials() -> None:
    covered = []
    for seed in range(100):
        lower, upper = PowerLawModel().fit(trials(0.1, seed)).predict_interval(trials(0.0))
        other = trials(0.1, 1000 + seed)["throughput"]
        covered.append(np.mean((lower <= other) & (other <= upper)))
    assert 0.87 <= np.mean(covered) <= 0.93
