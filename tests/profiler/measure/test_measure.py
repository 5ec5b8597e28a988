from __future__ import annotations

import numpy as np
import pytest

from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.measure import Timing, measure
from sizewright.profiler.series._base import TrialPoint
from sizewright.spec import Allocation, Job, Training
from tests.helpers.fake_trainer import BLOCK_S, ScriptedTrainer, SteadyTrainer

JOB = Job(name="j", training=Training(sync="sync"))
POINT = TrialPoint(Allocation.of(3, 2, 0.5, 0.25, 64), 0.25)
ALONE = TrialPoint(Allocation.of(1, 1, 0.5, 0.25, 64), 0.25)  # what a scripted trainer trains at


def still(seconds: float) -> None:
    """The trainers keep their own time."""


def test_constant_throughput_is_measured_exactly() -> None:
    trainer = SteadyTrainer(JOB)
    slept: list[float] = []
    trial = measure(trainer, POINT, Timing(warm_up_s=0.7, block_s=0.5), sleep=slept.append)
    assert trainer.scaled == [(POINT.allocation, 0.25)]
    assert slept[0] == 0.7
    assert set(slept[1:]) == {0.5}
    # Ten steps a second of 64 samples on each of three workers.
    assert trial.throughput == trial.throughput_raw == pytest.approx(1920)
    assert trial.throughput_se == pytest.approx(0, abs=1e-6)
    assert (trial.workers, trial.ps, trial.worker_cpu, trial.ps_cpu) == (3, 2, 0.5, 0.25)
    assert (trial.batch_size, trial.sync, trial.table_scale, trial.device) == (64, "sync", 0.25, "cpu")
    assert (trial.job, trial.job_hash, trial.status) == ("j", JOB.hash, "ok")
    phases = (trial.phase_data_s, trial.phase_pull_s, trial.phase_compute_s, trial.phase_push_s)
    assert phases == pytest.approx((0.001, 0.002, 0.003, 0.004))
    assert (trial.ps_busy_s, trial.ps_busy_max_s) == pytest.approx((0.0075, 0.01))
    assert trial.ps_share_max == pytest.approx(2 / 3)
    assert (trial.unique_rows_per_batch, trial.network_bytes) == pytest.approx((7, 11))
    assert (trial.embedding_bytes, trial.rows_at_start) == (1280, 100)
    assert (trial.worker_memory_bytes, trial.ps_memory_bytes) == (1002, 2001)
    assert (trial.worker_cpu_used, trial.ps_cpu_used) == pytest.approx((0.45, 0.125))
    assert trial.duration_s == pytest.approx(2.5)
    assert trial.steps == 3 * 25
    assert trial.uncharged_cpu_s == pytest.approx(0.2 * 2.5)
    assert trial.throttled_s == pytest.approx(5 * 0.01 * 2.5)
    assert (trial.limited_by, trial.cfs_period_ms) == ("cgroup", 20)
    assert trial.started_at is not None


def test_the_standard_error_is_that_of_the_block_rates() -> None:
    rates = [100.0, 120.0, 90.0, 110.0, 80.0]
    trial = measure(ScriptedTrainer(JOB, rates), ALONE, Timing(max_s=2.5, min_steps=1, warm_up_steps=0), sleep=still)
    assert trial.throughput == pytest.approx(np.mean(rates))
    assert trial.throughput_se == pytest.approx(np.std(rates, ddof=1) / np.sqrt(5))


def test_measurement_ends_at_the_target_error_or_the_maximum_time() -> None:
    noisy = [100.0, 140.0] * 20
    calm = [100.0, 140.0, *[120.0] * 40]
    timing = Timing(min_s=1.0, max_s=15.0, target_se=0.02, min_steps=1, warm_up_steps=0)
    assert measure(ScriptedTrainer(JOB, [120.0] * 40), ALONE, timing, sleep=still).duration_s == 3 * BLOCK_S
    assert measure(ScriptedTrainer(JOB, noisy), ALONE, timing, sleep=still).duration_s == 15.0
    settled = measure(ScriptedTrainer(JOB, calm), ALONE, timing, sleep=still)
    assert settled.throughput is not None
    assert (settled.throughput_se or 0) / settled.throughput <= 0.02
    assert 3 * BLOCK_S < (settled.duration_s or 0) < 15.0


def test_slow_steps_get_up_to_four_times_the_maximum_time() -> None:
    trial = measure(SteadyTrainer(JOB, step_s=1.5), POINT, Timing(), sleep=still)
    assert trial.throughput == pytest.approx(3 * 64 / 1.5)
    assert trial.steps == 3 * 8
    assert trial.duration_s == pytest.approx(12, abs=1)


def test_a_trial_begins_after_two_steps_of_every_worker() -> None:
    """The first steps of a worker that has just been started are slower than all others."""
    slept: list[float] = []
    trial = measure(SteadyTrainer(JOB, step_s=1.5), POINT, Timing(), sleep=slept.append)
    begun = measure(SteadyTrainer(JOB, step_s=1.5), POINT, Timing(warm_up_steps=0), sleep=still)
    blocks_of_two_steps = 6  # of half a second; the first observation is within a step
    blocks = (trial.duration_s or 0) / BLOCK_S
    assert len(slept) - 1 - blocks == pytest.approx(blocks_of_two_steps - 1, abs=1)
    assert trial.throughput == pytest.approx(begun.throughput)


def test_without_a_step_the_trial_is_void() -> None:
    with pytest.raises(TrialVoidError, match=r"Not every worker finished a step within 20 s"):
        measure(SteadyTrainer(JOB, step_s=1000.0), POINT, Timing(), sleep=still)


@pytest.mark.parametrize(("share", "void"), [(1.0, False), (1.08, False), (1.1, True), (3.0, True)])
def test_cpu_above_its_quota_voids_the_trial(share: float, void: bool) -> None:
    trainer = SteadyTrainer(JOB, worker_cpu=share)
    if not void:
        assert measure(trainer, POINT, sleep=still).worker_cpu_used == pytest.approx(share * 0.5)
        return
    with pytest.raises(TrialVoidError, match=rf"worker 0 used {share * 0.5:.2f} cores although its limit is 0.5"):
        measure(trainer, POINT, sleep=still)


def test_cpu_use_is_not_checked_without_a_limit() -> None:
    trial = measure(SteadyTrainer(JOB, worker_cpu=3.0, limited_by="none"), POINT, sleep=still)
    assert trial.limited_by == "none"
