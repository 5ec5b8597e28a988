from __future__ import annotations

import math

import pytest

from sizewright.recommender.control.run_evidence import RunEvidence
from sizewright.recommender.control.windows import MetricsWindows, Window
from sizewright.spec import Allocation, Job
from tests.helpers.synthetic_metrics import metrics

JOB = Job(name="ctr")
THREE, FOUR = Allocation.of(3, 2, 0.8, 0.5, 512), Allocation.of(4, 2, 0.8, 0.5, 512)


def windows(count: int, workers: int = 3, rate: float = 100.0) -> list[Window]:
    observations = MetricsWindows()
    added = [
        observations.add(float(at_s), metrics(float(at_s), workers=workers, rate=rate)) for at_s in range(1, count + 2)
    ]
    return [window for window in added if isinstance(window, Window)]


def test_allocation_yields_one_trial_with_all_measurements() -> None:
    run = RunEvidence(JOB, "run-1", THREE)
    for window in windows(10):
        run.add(window)
    (trial,) = run.trials()
    assert trial.usable
    assert (trial.workers, trial.ps, trial.worker_cpu, trial.ps_cpu) == (3, 2, pytest.approx(0.8), 0.5)
    assert (trial.job_hash, trial.series, trial.batch_size) == (JOB.hash, "run-1", 512)
    assert trial.throughput == pytest.approx(100.0)
    assert trial.throughput_se == pytest.approx(1.0)  # no variation, and the minimum is 1 %
    assert trial.worker_cpu_used == pytest.approx(0.5)
    assert trial.phase_compute_s == pytest.approx(0.08)
    assert trial.ps_busy_s == pytest.approx(0.01)
    assert trial.worker_memory_bytes == 10**8


def test_each_allocation_yields_its_own_trial() -> None:
    run = RunEvidence(JOB, "run-1", THREE)
    for window in windows(5):
        run.add(window)
    run.changed(FOUR)
    assert [trial.workers for trial in run.trials()] == [3]
    for window in windows(5, workers=4, rate=150.0):
        run.add(window)
    assert [(t.workers, round(t.throughput or 0)) for t in run.trials()] == [(3, 100), (4, 150)]
    assert run.rate[0] == pytest.approx(150.0)


def test_short_training_yields_no_trial() -> None:
    run = RunEvidence(JOB, "run-1", THREE)
    assert run.rate == (0.0, math.inf)
    assert run.trials() == []
    for window in windows(2):
        run.add(window)
    assert run.trials() == []
    run.changed(FOUR)
    assert run.trials() == []


def test_varying_throughput_has_a_larger_error() -> None:
    constant, varying = RunEvidence(JOB, "a", THREE), RunEvidence(JOB, "b", THREE)
    for i, window in enumerate(windows(10)):
        constant.add(window)
        varying.add(window._replace(samples=50 if i % 2 else 150))
    assert varying.rate[0] == pytest.approx(constant.rate[0])
    assert varying.rate[1] == pytest.approx(0.5 / 3, rel=0.01)
    assert constant.rate[1] == 0.01
