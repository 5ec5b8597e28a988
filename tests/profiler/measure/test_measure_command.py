"""Trials of commands with known reports, on a simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from sizewright.datasets.trials.planned_fields import gpus_of
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_command import measure_command, trial_row
from sizewright.profiler.measure.steady_state import SteadyState
from sizewright.profiler.series._base import TrialPoint
from sizewright.spec import Allocation, Job, Metrics, ReplicaMetrics

JOB = Job.model_validate({"name": "own", "command": {"run": "x"}, "training": {"batch_size": 64}})
POINT = TrialPoint(JOB.with_sides(Allocation.of(2, 0, 0.5, 1.0, 64)))
TIMING = Timing(min_s=3, max_s=10, target_se=0.02, block_s=0.5)


class ReportingTrainer:
    """Two workers that report every `every_s` and succeed after `duration_s`; `rate` maps time to samples/s."""

    host = "somewhere"

    def __init__(self, rate: Callable[[float], float], *, duration_s: float = 1e9, every_s: float = 0.1) -> None:
        self.job, self._rate, self._duration_s, self._every_s = JOB, rate, duration_s, every_s
        self.now_s = 1000.0
        self._start_s = self.now_s

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        assert allocation == POINT.allocation
        self.now_s += 2.0  # time to start
        self._start_s = self.now_s

    def pause(self) -> None:
        raise AssertionError("a single trial needs no pause")

    def discard(self) -> None:
        raise AssertionError("nothing failed")

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def finished(self) -> bool:
        return self._elapsed_s >= self._duration_s

    def reports(self) -> Sequence[Sequence[tuple[float, int]]]:
        series, count = [(self._start_s, 0)], 0.0
        for i in range(int(self._elapsed_s / self._every_s + 1e-6)):
            count += self._rate(i * self._every_s) * self._every_s
            series.append((self._start_s + (i + 1) * self._every_s, round(count)))
        return [series, series]

    def observe(self) -> Metrics:
        samples = self.reports()[0][-1][1]
        return Metrics(
            replicas=tuple(
                ReplicaMetrics(
                    role="worker", index=i, at_s=self.now_s, cpu_s=0.4 * self.now_s, throttled_s=0.0,
                    memory_peak_bytes=100 + i, limited_by="cgroup", cfs_period_ms=20, steps=samples // 64,
                    samples=samples, data_s=samples / 64 * 0.02,
                )
                for i in range(2)
            )
        )  # fmt: skip

    @property
    def _elapsed_s(self) -> float:
        return min(self.now_s - self._start_s, self._duration_s)


def measured(trainer: ReportingTrainer, **options: float) -> Trial:
    return measure_command(trainer, POINT, TIMING, sleep=trainer.sleep, clock=lambda: trainer.now_s, **options)


def test_warm_up_is_excluded_and_row_of_trial_is_complete() -> None:
    trainer = ReportingTrainer(lambda at_s: 64 if at_s < 1.5 else 640)
    trial = measured(trainer)
    assert trial.throughput == trial.throughput_raw == pytest.approx(1280, rel=0.02)
    assert (trial.workers, trial.ps, trial.worker_cpu, trial.ps_cpu, trial.batch_size) == (2, 0, 0.5, None, 64)
    assert (trial.job, trial.job_hash, trial.status, trial.limited_by) == ("own", JOB.hash, "ok", "cgroup")
    assert trial.worker_cpu_used == pytest.approx(0.4)
    assert (trial.worker_memory_bytes, trial.ps_memory_bytes) == (101, None)
    assert trial.phase_data_s == pytest.approx(0.02, rel=0.05)
    assert trial.phase_compute_s is None  # it reported none
    assert trial.started_at is not None


def test_noisy_rate_is_measured_for_longer() -> None:
    smooth = ReportingTrainer(lambda _: 640)
    measured(smooth)
    noisy = ReportingTrainer(lambda at_s: 320 if int(at_s / 0.5) % 2 else 960)
    trial = measured(noisy)
    assert noisy.now_s > smooth.now_s + 2
    assert trial.throughput == pytest.approx(1280, rel=0.1)
    assert trial.throughput_se is not None
    assert trial.throughput_se > 0.02 * 1280


def test_unsteady_throughput_raises_error_with_its_rates() -> None:
    trainer = ReportingTrainer(lambda at_s: 100 + 200 * at_s)
    with pytest.raises(TrialVoidError, match=r"not steady within 20 s: it changed from [\d,]+ to [\d,]+ samples/s"):
        measured(trainer, max_trial_s=20)


def test_exit_before_steady_state_raises_error() -> None:
    with pytest.raises(TrialVoidError, match=r"exited after 1\.0 s, before its throughput was steady"):
        measured(ReportingTrainer(lambda _: 640, duration_s=1.0))


def test_exit_after_steady_state_gives_a_trial() -> None:
    assert measured(ReportingTrainer(lambda _: 640, duration_s=2.6)).throughput == pytest.approx(1280, rel=0.02)


def test_rare_reports_raise_error() -> None:
    with pytest.raises(TrialVoidError, match="reported too rarely to measure its throughput within 12 s"):
        measured(ReportingTrainer(lambda _: 640, every_s=3.0), max_trial_s=12)


def test_use_of_gpus_is_a_mean_over_workers_and_absent_without_nvml() -> None:
    def metrics(at_s: float, **gpu: float) -> Metrics:
        about = {"cpu_s": at_s, "throttled_s": 0.0, "memory_peak_bytes": 1, "at_s": at_s, "role": "worker"}
        of_each = [{name: value * number for name, value in gpu.items()} for number in (1, 2)]
        return Metrics.model_validate({"replicas": [{**about, "index": i, **use} for i, use in enumerate(of_each)]})

    steady = SteadyState(0.0, 100.0, 1.0, 10.0)
    first = metrics(0.0, gpu_busy_s=1, gpu_energy_j=100)
    last = metrics(10.0, gpu_busy_s=3, gpu_energy_j=1600, device_memory_bytes=500)
    row = trial_row(JOB, POINT, steady, first, last, counts_job=False)
    assert (row.gpu_utilization, row.gpu_power_w) == (pytest.approx(0.3), pytest.approx(225.0))
    assert row.device_memory_bytes == 1000
    absent = trial_row(JOB, POINT, steady, metrics(0.0), metrics(10.0), counts_job=False)
    assert (absent.gpu_utilization, absent.gpu_power_w, absent.device_memory_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("gpu", "product", "count", "kind"),
    [
        (None, None, None, None),
        (None, "NVIDIA-H100", None, "NVIDIA-H100"),
        ("2", "NVIDIA-H100", 2, "NVIDIA-H100"),
        ("a100:2", "NVIDIA-A100-SXM4", 2, "a100"),
        ([0, 2], None, 0, None),
    ],
)
def test_trial_records_the_gpus_of_its_bounds(
    gpu: object, product: str | None, count: int | None, kind: str | None
) -> None:
    job = Job.model_validate({"command": {"run": "x"}, "bounds": {"worker": {"gpu": gpu}}})
    planned = job.with_gpu_kind(Allocation.of(1, 0, 1.0, 1.0, 64, worker_gpu=count or 0))
    assert gpus_of(job, planned, product) == {"worker_gpu": count, "gpu_kind": kind}
