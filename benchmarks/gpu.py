"""A DLRM on GPUs: throughput over batch sizes, ranks, loaders and cores, and the prediction of sizes not measured.

It needs PyTorch and the packages of `gpu-requirements.txt`; no Ray. `make gpu-check` installs them and runs it. Every
trial is kept. Without a GPU only the smoke form runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import sizewright as sw
from benchmarks._report import SMOKE, choose, finish
from benchmarks._trials import BRIEF
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import TrialError
from sizewright.models.memory.device import DeviceMemory
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_command import measure_command
from sizewright.profiler.series._base import TrialPoint
from sizewright.spec import Allocation, Job
from sizewright.training.command.session import CommandSession
from sizewright.training.host.capacity import host_cores
from sizewright.training.host.gpus import gpu_ids, gpu_product

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_code" / "torch_gpu.yaml"
_TABLES = {"small": (100_000, 16), "large": (1_000_000, 64)}
"""Rows of each of the 26 tables, and their dimension."""
TABLES: Mapping[str, tuple[int, int]] = choose(_TABLES, _TABLES, {"tiny": (1000, 4)})
_BATCHES = [2**power for power in range(8, 17)]
BATCHES = choose(_BATCHES, _BATCHES[1::2], [32, 48, 64, 96, 128])
BATCH_CORES = 2.0
READING_BATCH = choose(8192, 8192, 64)
LOADERS: Sequence[int] = choose([1, 4, 8, 12], [1, 4, 12], [1])
CORES: Sequence[float] = choose([1, 2, 4, 8, 14], [2, 14], [1])
TIMING = choose(Timing(min_s=3, max_s=5, target_se=0.01), Timing(min_s=2, max_s=3), BRIEF)
ENOUGH = 0.9
GPUS = gpu_ids()

Rows = list[dict[str, object]]
Figures = dict[str, float]


def main() -> None:
    if not GPUS and not SMOKE:
        raise SystemExit("This benchmark measures GPUs, and this host has none.")
    parts = {"batches": batches, "ranks": ranks, "reading": reading}
    selected = sys.argv[1:] or list(parts)
    details: dict[str, object] = {"gpu": gpu_product(GPUS) or ("unknown" if GPUS else "cpu"), "gpus": len(GPUS)}
    figures: Figures = {}
    for name in selected:
        figures |= parts[name](details)
    finish("gpu", figures, {}, details, part=selected != list(parts))


def batches(details: dict[str, object]) -> Figures:
    """Measure every second batch size and predict the others, with tables of two sizes and nothing to read."""
    rows: Rows = []
    errors: list[float] = []
    held: list[bool] = []
    memory_errors: list[float] = []
    for tables in TABLES:
        job = described(tables, loaders=0)
        measured = {batch: measured_row(job, BATCH_CORES, batch, tables=tables, loaders=0) for batch in BATCHES}
        rows += [row for _, row in measured.values()]
        known = {batch: trial for batch, (trial, _) in measured.items() if trial.usable}
        training = list(known)[::2]
        for batch in list(known)[1::2]:
            answer = sw.predict(
                job, workers=1, worker_cpu=BATCH_CORES, batch_size=batch, trials=[known[one] for one in training]
            )
            assert answer.asked is not None, answer
            expected, actual = answer.asked.predicted.throughput, known[batch].throughput
            assert actual is not None
            errors.append(abs(expected.value / actual - 1))
            held.append(expected.lower <= actual <= expected.upper)
            print(f"{tables}, batch {batch}: predicted {expected}, measured {actual:,.0f}", flush=True)
        memory_errors += held_out_memory_errors(job, list(known.values()))
    details["batches"] = rows
    return {
        "batch_error": float(np.median(errors)),
        "batch_error_worst": max(errors),
        "batch_coverage": float(np.mean(held)),
        **({"device_memory_error": max(memory_errors)} if memory_errors else {}),
    }


def held_out_memory_errors(job: Job, trials: Sequence[Trial]) -> list[float]:
    """Return the errors of the predicted memory of a GPU, fitted to every second trial, at the other trials."""
    known = [trial for trial in trials if trial.device_memory_bytes]
    if len(known) < 3:
        return []
    memory = DeviceMemory.fit(job, known[::2])
    errors = []
    for trial in known[1::2]:
        sizes = (trial.workers, trial.worker_gpu or 1, trial.batch_size or job.training.batch_size)
        (predicted,) = memory.gpu_bytes(*(np.array([float(size)]) for size in sizes))
        errors.append(abs(predicted / (trial.device_memory_bytes or np.nan) - 1))
    return errors


def ranks(details: dict[str, object]) -> Figures:
    """Measure 1, 2, 4, … ranks with a GPU each, and predict the largest number from the others."""
    counts = [2**power for power in range(10) if 2**power <= min(len(GPUS), host_cores() / BATCH_CORES)]
    if len(counts) < 2:
        print(f"{len(GPUS)} GPU: ranks on several GPUs are not measured", flush=True)
        return {}
    job = described(next(iter(TABLES)), loaders=0, max_workers=counts[-1])
    measured = {count: measured_row(job, BATCH_CORES, READING_BATCH, workers=count) for count in counts}
    details["ranks"] = [row for _, row in measured.values()]
    rates = {count: trial.throughput for count, (trial, _) in measured.items() if trial.throughput}
    if not {1, counts[-1]} <= rates.keys():
        return {}
    figures = {"ranks": float(counts[-1]), "rank_speed_up": rates[counts[-1]] / rates[1]}
    *others, largest = (trial for trial, _ in measured.values() if trial.usable)
    if len(others) >= 3:
        answer = sw.predict(job, workers=counts[-1], worker_cpu=BATCH_CORES, batch_size=READING_BATCH, trials=others)
        assert answer.asked is not None, answer
        figures["rank_error"] = abs(answer.asked.predicted.throughput.value / (largest.throughput or np.nan) - 1)
    return figures


def reading(details: dict[str, object]) -> Figures:
    """Measure loaders × cores, and compare the best rate with that of a GPU that has nothing to read."""
    tables = next(iter(TABLES))
    alone, row = measured_row(described(tables, loaders=0), BATCH_CORES, READING_BATCH, tables=tables, loaders=0)
    rows: Rows = [row]
    rates: dict[tuple[int, float], float] = {}
    for loaders in LOADERS:
        for cores in CORES:
            if loaders / 2 <= cores <= loaders + 2:
                trial, row = measured_row(
                    described(tables, loaders), cores, READING_BATCH, tables=tables, loaders=loaders
                )
                rows.append(row)
                rates[loaders, cores] = trial.throughput or 0.0
    details["reading"] = rows
    full, best = alone.throughput or np.nan, max(rates.values())
    enough = [cores for (_, cores), rate in rates.items() if rate >= ENOUGH * best]
    return {
        "rate_without_reading": full,
        "rate_while_reading": best,
        "share_while_reading": best / full,
        "cores_to_read": min(enough, default=np.nan),
    }


def described(tables: str, loaders: int, max_workers: int = 1) -> Job:
    """Return the job of the example, with these tables and loaders; on the CPU where there is no GPU."""
    rows, dim = TABLES[tables]
    job = Job.load(EXAMPLE)
    bounds_of_worker: dict[str, object] = {"cpu": (BATCH_CORES, BATCH_CORES), "replicas": (1, max_workers)}
    if not GPUS:
        bounds_of_worker["gpu"] = None
        job = job.model_copy(update={"training": job.training.model_copy(update={"device": "cpu"})})
    worker = job.bounds.worker.model_copy(update=bounds_of_worker)
    bounds = job.bounds.model_copy(update={"batch_size": (min(BATCHES), max(BATCHES)), "worker": worker})
    assert job.command is not None
    words = (sys.executable, *job.command.run[1:-1], str(loaders), "--rows", str(rows), "--dim", str(dim))
    command = job.command.model_copy(update={"run": words})
    return job.model_copy(update={"name": f"dlrm-{tables}-{loaders}", "command": command, "bounds": bounds})


def measured_row(
    job: Job, cores: float, batch: int, workers: int = 1, **named: object
) -> tuple[Trial, dict[str, object]]:
    """Return the trial of workers with these cores and a GPU each, and a row with what was seen of it."""
    point = TrialPoint(Allocation.of(workers, 0, cores, 1.0, batch, worker_gpu=1 if GPUS else 0))
    row = {**named, "workers": workers, "cores": cores, "batch_size": batch}
    try:
        with CommandSession(job, trial=True) as session:
            trial = measure_command(session, point, TIMING)
    except TrialError as error:
        print(f"{row}: {error}", flush=True)
        return Trial(workers=workers, ps=0, status="failed", message=str(error)), row | {"failed": str(error)}
    row |= trial.model_dump(
        include={"throughput", "throughput_se", "duration_s", "phase_data_s", "phase_compute_s", "worker_cpu_used",
                 "worker_memory_bytes", "limited_by", "device_memory_bytes", "gpu_utilization", "gpu_power_w"},
        exclude_none=True,
    )  # fmt: skip
    print(
        ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()),
        flush=True,
    )
    return trial, row


if __name__ == "__main__":
    main()
