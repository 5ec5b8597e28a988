"""Recommendations for user code, from trials with a known curve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import MIB
from sizewright.models.memory.described import DescribedMemory
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.spec import Bounds, Command, Job, RoleBounds, Training

CPU_S = 1e-4
BOUNDS = {"worker": {"replicas": [1, 6], "cpu": [0.2, 1.0], "memory": ["0", "4Gi"]}}
ALLOCATIONS = [(1, 0.2), (1, 0.5), (2, 0.4), (3, 0.3), (3, 0.6), (4, 0.3), (5, 0.5), (6, 0.4)]


def job(**command: Any) -> Job:
    command_keys = {"run": "python train.py --batch {batch_size}", **command}
    training = {"batch_size": 512, "samples": 10_000_000}
    return Job.model_validate({"name": "own", "command": command_keys, "training": training, "bounds": BOUNDS})


def trials(ceiling: float, **change: Any) -> list[Trial]:
    """Return trials whose steps only compute; a shared input pipeline limits them to `ceiling` samples/s."""
    rows = []
    for workers, cores in ALLOCATIONS:
        rate = min(workers * cores / CPU_S, ceiling)
        row = {
            "workers": workers, "ps": 0, "throughput": rate, "throughput_se": 0.005 * rate, "worker_cpu": cores,
            "batch_size": 512, "worker_cpu_used": rate * CPU_S / workers, "worker_memory_bytes": 300 * MIB,
            "limited_by": "cgroup",
        }  # fmt: skip
        rows.append(Trial.model_validate(row | change))
    return rows


def test_input_bottleneck_is_named_and_gets_no_more_workers() -> None:
    answer = recommend(SizingRequest(job(), trials(4000.0)))
    assert answer.status == "ok", answer.reasons
    assert answer.target is not None
    assert answer.predicted is not None
    (reason,) = [reason for reason in answer.reasons if "input pipeline" in reason]
    assert "stays at about 4,000 samples/s" in reason
    assert "More workers are not recommended" in reason
    assert answer.target.cores("worker") <= 0.45  # 4,000 samples/s take 0.4 cores
    assert answer.predicted.throughput.value <= 4100


def test_measured_phases_confirm_the_input_bottleneck() -> None:
    reading = trials(4000.0, phase_data_s=0.3, phase_compute_s=0.1)
    (reason,) = [reason for reason in recommend(SizingRequest(job(), reading)).reasons if "input pipeline" in reason]
    assert "8 of 8 trials spent more time on data than on computing" in reason


def test_job_without_bottleneck_names_none() -> None:
    answer = recommend(SizingRequest(job(), trials(float("inf"))))
    assert answer.status == "ok", answer.reasons
    assert not any("input pipeline" in reason for reason in answer.reasons)
    assert answer.target is not None
    assert answer.target.cores("worker") > 2  # throughput follows the cores, so they pay


def test_chief_and_evaluator_are_in_the_plan_and_in_its_price() -> None:
    servers = [{"ps": 1 + i % 3, "ps_cpu": 0.3 + 0.1 * (i % 2)} for i in range(len(ALLOCATIONS))]
    rows = [t.model_copy(update=server) for t, server in zip(trials(4000.0), servers, strict=True)]
    plain = recommend(SizingRequest(job(rendezvous="hosts"), rows))
    sided = recommend(
        SizingRequest(job(rendezvous="hosts", chief={"cpu": 2, "memory": "8Gi"}, evaluator={"cpu": 1}), rows)
    )
    assert plain.target is not None
    assert sided.target is not None
    assert (sided.target.replicas("chief"), sided.target.replicas("evaluator")) == (1, 1)
    assert plain.predicted is not None
    assert sided.predicted is not None
    hours = [10_000_000 / answer.predicted.throughput.value / 3600 for answer in (plain, sided)]
    min_hourly_cost = plain.predicted.cost.value / hours[0] + 3 + 8 * 0.13  # the sides' cores and GiB
    assert sided.predicted.cost.value / hours[1] >= min_hourly_cost - 1e-6


def test_measured_plateau_limits_the_target() -> None:
    """Images/s of BytePS' synthetic benchmark on 1 to 16 GPUs: the last doubling brings 11 %."""
    job = Job(
        command=Command(run=("python", "train.py")),
        training=Training(batch_size=32, samples=10_000_000, sync="sync"),
        bounds=Bounds(worker=RoleBounds(replicas=(1, 16), cpu=(4, 4))),
    )
    rates = {1: 335.1, 2: 618.8, 4: 1242.4, 8: 2452.8, 16: 2726.4}
    rows = [
        Trial(workers=w, ps=0, worker_cpu=4, batch_size=32, sync="sync", throughput=rate * repeat)
        for w, rate in rates.items()
        for repeat in (0.995, 1.0, 1.006)
    ]
    answer = recommend(SizingRequest(job, rows))
    assert answer.target is not None
    assert answer.predicted is not None
    assert 8 <= answer.target.replicas("worker") <= 10
    assert answer.predicted.throughput.value < 2726.4


DESCRIPTION = {"tables": {"count": 2, "rows": 5_000_000, "dim": 32}}


def described(**change: Any) -> Job:
    return Job.model_validate(job().model_dump(by_alias=True) | {"model": DESCRIPTION} | change)


def test_description_changes_nothing_where_memory_was_measured() -> None:
    plain, answer = (recommend(SizingRequest(each, trials(4000.0))) for each in (job(), described()))
    assert answer == plain, "neither throughput nor memory is taken from a description"


def test_description_is_the_least_memory_of_workers_that_were_not_measured() -> None:
    unbounded = {"bounds": {"worker": {"replicas": [1, 6], "cpu": [0.2, 1.0]}}}
    without_peaks = trials(4000.0, worker_memory_bytes=None)
    plain = recommend(SizingRequest(Job.model_validate(job().model_dump(by_alias=True) | unbounded), without_peaks))
    answer = recommend(SizingRequest(described(**unbounded), without_peaks))
    for each in (plain, answer):
        assert each.target is not None
        assert each.predicted is not None
        assert each.predicted.worker_memory_bytes is None, "nothing was measured"
        assert each.predicted.worker_oom_probability is None
    assert plain.target is not None
    assert answer.target is not None
    assert plain.target.worker[0].memory_bytes == 0
    workers = np.array([float(answer.target.replicas("worker"))])
    needed = DescribedMemory(described()).worker_request_bytes(np.array([512.0]), workers)[0]
    assert answer.target.worker[0].memory_bytes == pytest.approx(needed, abs=64 * MIB)
    assert any("the least by the description of its tables" in reason for reason in answer.reasons)


def test_tables_that_are_too_large_for_the_bounds_make_the_job_infeasible() -> None:
    bounds = {"worker": {"replicas": [1, 2], "cpu": [0.2, 1.0], "memory": [0, "1Gi"]}}
    answer = recommend(SizingRequest(described(bounds=bounds), trials(4000.0, worker_memory_bytes=None)))
    assert answer.status == "infeasible"
    assert "bounds.worker.memory" in answer.remedies[0].text
