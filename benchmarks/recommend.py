"""The main path: time to an answer, training efficiency, and predictions for another table scale."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import Problem
from pymoo.optimize import minimize

import sizewright as sw
from benchmarks._measured import TABLES
from benchmarks._report import SMOKE, choose, finish
from benchmarks._trials import BRIEF, measure_valid
from sizewright.api import assign_job
from sizewright.datasets.trials.files import import_trials
from sizewright.datasets.trials.trial import Trial
from sizewright.models import ThroughputModel
from sizewright.models.forms.dlrover import DlroverModel
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.series._base import TrialPoint
from sizewright.recommender.sizing.pareto import pareto_front
from sizewright.spec import Allocation, Job
from sizewright.training.session import Session

SHAPE = Path(__file__).parent / "shape.yaml"
MAX_ROWS = choose(100_000, 100_000, 1_000)
TARGETS = {
    "help_s": "≤ 0.4",
    "recommend_s": "≤ 2.0 (1.2 worth trying for)",
    "pareto_100k_s": "≤ 0.060",
    "speedup_vs_nsga2": "≥ 10",
    "train_efficiency": "≥ 0.7",
    "memory_scale_error": "≤ 0.10",
}
PAIRS = choose(7, 3, 1)
RUNS = choose(9, 3, 1)
SCALES = choose((1.0, 1 / 2, 1 / 4, 1 / 16), (1.0, 1 / 2, 1 / 4, 1 / 16), (1.0, 1 / 2))
HELD_OUT = 1 / 2
ROUNDS = choose(4, 2, 1)
ALLOCATIONS = tuple(
    Allocation.of(workers, 1, worker_cpu, ps_cpu, 512)
    for workers, worker_cpu, ps_cpu in ((choose(2, 2, 1), 0.5, 0.4), (choose(3, 3, 1), 0.4, 0.1), (1, 0.8, 0.2))
)  # fmt: skip
"""A model needs at least three allocations."""
_TIMING = Timing(min_s=5, max_s=6)
TRAINED, SCALED = choose((_TIMING, Timing()), (_TIMING, Timing()), (BRIEF,) * 2)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        job, shape = Job.load(SHAPE), Path(folder) / "shape.yaml"
        shape.write_text(SHAPE.read_text().replace("max_rows: 100000", f"max_rows: {MAX_ROWS}"))
        store = f"{folder}/trials.db"
        trials = profiled(job, store)
        model = DlroverModel().fit(trials)
        cli = [str(Path(sys.executable).parent / "sizewright")]
        figures = {
            "help_s": median_of(RUNS, lambda: run_seconds([*cli, "--help"])),
            "recommend_s": median_of(RUNS, lambda: run_seconds([*cli, "recommend", str(SHAPE), "--store", store])),
        }
        figures |= pareto_figures(model)
        trained = Job.load(shape)
        with Session(trained) as session:
            efficiency, pairs = train_efficiency(session, shape)
            scale_errors = scale_figures(trained, session, trials)
    figures |= {"train_efficiency": efficiency} | scale_errors
    finish("recommend", figures, TARGETS, {"train_pairs": pairs})


def profiled(job: Job, store: str) -> list[Trial]:
    """Profile the job. A smoke run imports earlier trials of the same shape instead."""
    if not SMOKE:
        return sw.profile(job, store=store, accept_drift=True)
    trials = assign_job(import_trials(TABLES / "mixed.csv")[::8], job)
    with sw.open_store(store, create=True) as opened:
        opened.add_all(trials)
    return trials


def median_of(count: int, measure_once: Callable[[], float]) -> float:
    return float(np.median([measure_once() for _ in range(count)]))


def run_seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def pareto_figures(model: DlroverModel) -> dict[str, float]:
    """Time the exact front of 100,000 allocations, and NSGA-II over the same box and model."""
    low, high = np.array([1, 1, 0.2, 0.1]), np.array([40, 25, 4.0, 2.0])
    axes = [np.arange(1, 41), np.arange(1, 26), np.linspace(0.2, 4, 10), np.linspace(0.1, 2, 10)]
    grid = np.column_stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]).astype(float)

    def score(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        columns = {"workers": x[:, 0], "ps": x[:, 1], "worker_cpu": x[:, 2], "ps_cpu": x[:, 3]}
        full = np.full(len(x), 1.0)
        rate = model.predict(columns | {"batch_size": full * 512, "embedding_bytes": full * 1e8})
        return rate, x[:, 0] * x[:, 2] + x[:, 1] * x[:, 3]

    class Search(Problem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=4, n_obj=2, xl=low, xu=high)

        def _evaluate(self, x: NDArray[np.float64], out: dict[str, object], *_: object, **__: object) -> None:
            rounded = np.column_stack([np.round(x[:, :2]), x[:, 2:]])
            rate, cores = score(rounded)
            out["F"] = np.column_stack([-rate, cores])

    def exact() -> float:
        start = time.perf_counter()
        rate, cores = score(grid)
        pareto_front(rate, cores)
        return time.perf_counter() - start

    def search() -> float:
        start = time.perf_counter()
        minimize(Search(), NSGA2(pop_size=100), ("n_gen", choose(100, 100, 3)), seed=1)
        return time.perf_counter() - start

    exact()
    ours, theirs = [], []
    for _ in range(choose(7, 3, 1)):
        ours.append(exact())
        theirs.append(search())
    ratios = np.array(theirs) / np.array(ours)
    return {"pareto_100k_s": float(np.median(ours)), "speedup_vs_nsga2": float(np.median(ratios))}


def train_efficiency(session: Session, shape: Path) -> tuple[float, list[tuple[float, float]]]:
    """Compare one worker and one PS of a core each with the single-process loop, in pairs."""
    allocation = Allocation.of(1, 1, 1.0, 1.0, 512)
    pairs = []
    for _ in range(PAIRS):
        trial = measure_valid(session, TrialPoint(allocation), TRAINED)
        session.discard()
        command = [sys.executable, "-m", "benchmarks._single_process", str(shape), f"{TRAINED.min_s:g}"]
        single = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        pairs.append((trial.throughput or 0.0, single))
        print(f"trained at {pairs[-1][0]:,.0f} samples/s, single process {single:,.0f}: {pairs[-1][0] / single:.3f}")
    return float(np.median([ours / single for ours, single in pairs])), pairs


def scale_figures(job: Job, session: Session, trials: list[Trial]) -> dict[str, float]:
    """Measure four table scales at three allocations in turn; fit the default model without one and predict it."""
    measured: list[Trial] = []
    for _ in range(ROUNDS):
        for allocation in ALLOCATIONS:
            measured += [measure_valid(session, TrialPoint(allocation, scale), SCALED) for scale in SCALES]
    known = [t for t in measured if t.table_scale != HELD_OUT]
    # Only trials of this series are compared, because the host's speed was different during the profile.
    model, memory = ThroughputModel().fit(known), MemoryModel.fit(job, known)
    with_profile = ThroughputModel().fit(trials + known)
    errors, profile_errors, memory_errors, spans = [], [], [], []
    for i, _ in enumerate(ALLOCATIONS):
        at_allocation = [t for t in measured if t.ps_cpu == ALLOCATIONS[i].ps[0].cpu]
        held_out = [t for t in at_allocation if t.table_scale == HELD_OUT]
        mean_rate = float(np.mean([t.throughput or 0.0 for t in held_out]))
        errors.append(abs(float(model.predict(held_out[:1])[0]) / mean_rate - 1))
        profile_errors.append(abs(float(with_profile.predict(held_out[:1])[0]) / mean_rate - 1))
        used = float(np.max([t.ps_memory_bytes or 0 for t in held_out]))
        predicted = memory.ps_bytes(np.array([1.0]), np.array([float(held_out[0].workers)]), HELD_OUT)
        memory_errors.append(abs(float(predicted[0]) / used - 1))
        at = {s: np.mean([t.throughput or 0.0 for t in at_allocation if t.table_scale == s]) for s in SCALES}
        spans.append(float(max(at.values()) / min(at.values()) - 1))
        print(ALLOCATIONS[i].describe(), {f"{s:g}": round(float(v)) for s, v in at.items()})
    return {
        "memory_scale_error": max(errors),
        "memory_scale_error_with_profile": max(profile_errors),
        "memory_scale_bytes_error": max(memory_errors),
        "memory_scale_span": max(spans),
    }


if __name__ == "__main__":
    main()
