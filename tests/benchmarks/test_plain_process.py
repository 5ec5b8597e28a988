"""The plain Gaussian process that the default model is compared with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from benchmarks._plain_process import PlainProcess, additional_error


def test_process_learns_a_power_law_of_workers_and_cores() -> None:
    allocations = pd.DataFrame(itertools.product((1, 2, 4, 8), (1.0, 2.0, 4.0)), columns=["workers", "worker_cpu"])
    allocations = allocations.assign(ps=0, batch_size=512)  # axes that do not vary are left out
    rates = 1e3 * allocations.workers**0.8 * allocations.worker_cpu**0.5
    trials = allocations.iloc[::2]
    process = PlainProcess(allocations).fit(trials, rates.iloc[::2])
    np.testing.assert_allclose(process.predict(allocations), rates, rtol=0.05)
    lower, upper = process.predict_interval(allocations, 0.9)
    assert ((lower < rates) & (rates < upper)).mean() > 0.8


def test_failed_trials_are_left_out() -> None:
    allocations = pd.DataFrame({"workers": [1, 2, 4, 8], "ps": 0})
    process = PlainProcess(allocations).fit(allocations, [100.0, 200.0, 0.0, 800.0])
    assert process.predict(allocations)[2] == pytest.approx(400, rel=0.2)


def test_additional_error_is_averaged_by_table_and_resampled_over_tables() -> None:
    worse = additional_error([0.2, 0.2, 0.3, math.nan], [0.1, 0.1, 0.1, 0.1], ["a", "a", "b", "b"])
    assert worse["mean"] == pytest.approx(0.15)
    assert worse["lower"] == pytest.approx(0.1)
    assert worse["upper"] == pytest.approx(0.2)
    assert math.isnan(additional_error([math.nan], [0.1], ["a"])["mean"])
