from __future__ import annotations

import numpy as np
import pytest

from sizewright.formatting import MIB
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.models.memory.peaks import log_errors, oom_probability, plane_over
from sizewright.spec import Job, Model, Tables


def test_oom_probability_is_that_of_another_peak() -> None:
    """Over many sets of eight peaks with 10 % noise, as many ninth peaks exceed the limit as predicted."""
    rng = np.random.default_rng(0)
    predicted, exceeded = [], []
    for _ in range(2000):
        peaks = 1e9 * rng.lognormal(0, 0.1, 9)
        predicted.append(oom_probability(1.15e9, 1e9, log_errors(peaks[:8], np.full(8, 1e9))))
        exceeded.append(peaks[8] > 1.15e9)
    assert np.mean(predicted) == pytest.approx(np.mean(exceeded), abs=0.05)
    assert 0.05 < np.mean(exceeded) < 0.12


def test_oom_probability_without_measurements_is_uncertain() -> None:
    none = np.empty(0)
    assert 0.05 < oom_probability(1.15e9, 1e9, none) < 0.3
    assert oom_probability(4e9, 1e9, none) < 0.01
    assert oom_probability(0.3e9, 1e9, none) > 0.99


def test_no_peak_lies_above_the_line() -> None:
    x, peaks = np.array([1.0, 2.0, 3.0]), np.array([10.0, 13.0, np.nan])
    base, slope = plane_over(peaks, x)
    assert (base, slope) == pytest.approx((7.0, 3.0))
    assert plane_over(np.full(3, np.nan), x) == (0.0, 0.0)
    assert plane_over(peaks[:2], np.ones(2)) == (13.0, 0.0)


def test_batch_sizes_determine_the_bytes_per_sample() -> None:
    job = Job(model=Model(tables=Tables(count=4, rows=1000, dim=16)))
    batch = np.array([1000.0, 20_000.0, 50_000.0])
    counted = MemoryModel(job, 0.0, 0.0).worker_bytes(batch) - MemoryModel(job, 0.0, 0.0).worker_bytes(0 * batch)
    peaks = 400 * MIB + 1.7 * counted
    trials = {"workers": [1, 1, 1], "ps": [1, 1, 1], "batch_size": batch, "worker_memory_bytes": peaks}
    model = MemoryModel.fit(job, trials)
    assert model.worker_bytes(np.array([100_000.0]))[0] == pytest.approx(400 * MIB + 3.4 * counted[2], rel=0.02)
