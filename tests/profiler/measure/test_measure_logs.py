"""A trial is measured from the logs of replicas, whatever way they report progress."""

from __future__ import annotations

import json

import pytest

from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_logs import measure_logs
from sizewright.profiler.series._base import TrialPoint
from sizewright.spec import Allocation, Job, ReplicaLog

RATE = 1000.0
"""Samples/s of a worker."""
WORKERS = Allocation.of(2, 0, 1.5, 1.0, 100)
TIMING = Timing(min_s=20, max_s=60)


def job(pattern: str = "", counts: str = "replica") -> Job:
    progress = {"source": "regex", "pattern": pattern, "counts": counts}
    command = {"run": ["python", "train.py"], **({"progress": progress} if pattern else {})}
    return Job.model_validate({"name": "ctr", "command": command})


def progress_lines(seconds: int, *, warm_up_s: int = 3, process: int = 1) -> tuple[tuple[float, str], ...]:
    """Return the lines of `log_samples`, one a second; the first seconds are slow."""
    lines = [(0.0, "loading")]
    for second in range(1, seconds):
        samples = RATE * (max(0, second - warm_up_s) + 0.1 * min(second, warm_up_s))
        sums = {"samples": int(samples), "steps": int(samples // 100), "at_s": float(second), "compute_s": second / 2}
        container = {"cpu_s": 1.25 * second, "throttled_s": 0.1 * second, "memory_peak_bytes": 1000 + second}
        line = {"process": process, "sums": sums, "container": container}
        lines.append((second + 0.01, f"sizewright-progress {json.dumps(line)}"))
    return tuple(lines)


def logs(seconds: int) -> list[ReplicaLog]:
    return [ReplicaLog("worker", index, progress_lines(seconds)) for index in range(2)]


def test_steady_replicas_give_throughput_cores_memory_and_phases() -> None:
    trial = measure_logs(job(), TrialPoint(WORKERS), logs(60), TIMING)
    assert trial is not None
    assert trial.throughput == pytest.approx(2 * RATE, rel=0.02)
    assert trial.worker_cpu_used == pytest.approx(1.25)
    assert trial.worker_memory_bytes == pytest.approx(1060, abs=5)
    assert trial.phase_compute_s == pytest.approx(2 * 0.5 * 100 / (2 * RATE), rel=0.05)
    assert (trial.workers, trial.ps, trial.worker_cpu, trial.batch_size) == (2, 0, 1.5, 100)
    assert trial.throttled_s == pytest.approx(2 * 0.1 * (trial.duration_s or 0))
    assert trial.job_hash == job().hash


@pytest.mark.parametrize("seconds", [2, 8, 18])
def test_short_logs_give_no_trial(seconds: int) -> None:
    assert measure_logs(job(), TrialPoint(WORKERS), logs(seconds), TIMING) is None


def test_worker_that_has_not_reported_gives_no_trial() -> None:
    started = [*logs(60)[:1], ReplicaLog("worker", 1, ((0.0, "loading"),))]
    assert measure_logs(job(), TrialPoint(WORKERS), started, TIMING) is None


def test_several_processes_of_a_replica_are_added() -> None:
    both = sorted([*progress_lines(60), *progress_lines(60, process=2)])
    worker = Allocation.of(1, 0, 1.5, 1.0, 100)
    trial = measure_logs(job(), TrialPoint(worker), [ReplicaLog("worker", 0, tuple(both))], TIMING)
    assert trial is not None
    assert trial.throughput == pytest.approx(2 * RATE, rel=0.05)


@pytest.mark.parametrize("counts", ["job", "replica"])
def test_lines_of_a_pattern_are_timed_by_the_platform(counts: str) -> None:
    told = job(pattern=r"step (?P<steps>\d+)", counts=counts)
    lines = tuple((float(second), f"step {10 * second} loss 0.4") for second in range(60))
    of_job = [ReplicaLog("worker", index, lines, cores=0.8, memory_bytes=5000) for index in range(2)]
    trial = measure_logs(told, TrialPoint(WORKERS), of_job, TIMING)
    assert trial is not None
    assert trial.throughput == pytest.approx((1 if counts == "job" else 2) * RATE, rel=0.02)
    assert trial.worker_cpu_used == pytest.approx(0.8)
    assert trial.worker_memory_bytes == 5000


def test_unknown_cores_and_memory_stay_unknown() -> None:
    told = job(pattern=r"step (?P<steps>\d+)")
    lines = tuple((float(second), f"step {10 * second}") for second in range(60))
    of_job = [ReplicaLog("worker", index, lines) for index in range(2)]
    trial = measure_logs(told, TrialPoint(WORKERS), of_job, TIMING)
    assert trial is not None
    assert (trial.worker_cpu_used, trial.worker_memory_bytes) == (None, None)


def test_job_whose_speed_changes_is_not_steady() -> None:
    told = job(pattern=r"step (?P<steps>\d+)")
    lines = tuple((float(second), f"step {second * second}") for second in range(60))
    of_job = [ReplicaLog("worker", index, lines) for index in range(2)]
    assert measure_logs(told, TrialPoint(WORKERS), of_job, TIMING) is None


@pytest.mark.parametrize("replicas", [1, 3])
def test_other_numbers_of_replicas_give_no_trial(replicas: int) -> None:
    of_job = [ReplicaLog("worker", index, progress_lines(60)) for index in range(replicas)]
    assert measure_logs(job(), TrialPoint(WORKERS), of_job, TIMING) is None
