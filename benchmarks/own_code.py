"""The user's own code: the overhead of measuring it, the error of the throughput, and the quality of the answer."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import stats

import sizewright as sw
from benchmarks._report import SMOKE, choose, finish
from benchmarks._trials import BRIEF
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_command import measure_command
from sizewright.profiler.series._base import TrialPoint
from sizewright.progress import VARIABLE
from sizewright.recommender.sizing.grid import make_grid
from sizewright.spec import Allocation, Job
from sizewright.spec.objective import hourly_price
from sizewright.training.command.local_launcher import LocalLauncher
from sizewright.training.command.run import Run
from sizewright.training.command.session import CommandSession

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_code" / "torch_ddp.yaml"
TARGETS = {
    "measuring_overhead": "≤ 0.02",
    "throughput_error": "≤ 0.03",
    "profile_s": "≤ 180",
    "regret": "≤ 0.05",
}
WINDOWS, WINDOW_S, LOOK_S = choose(30, 5, 2), choose(2.0, 2.0, 0.5), 0.2
RUNS, SAMPLES = choose(6, 2, 1), choose(600_000, 600_000, 30_000)
TRIALS, CHECKED = choose(6, 6, 1), choose(12, 4, 0)
FINAL = re.compile(r"trained (\d+) samples in ([\d.]+) s")
_FULL = Timing(min_s=4, max_s=8, target_se=0.01)
TIMING = choose(_FULL, _FULL, BRIEF)

Figures = dict[str, float]


def main() -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    details: dict[str, object] = {}
    job = Job.load(EXAMPLE)
    parts = {"measuring": measuring, "agreement": agreement, "answer": answer}
    selected = sys.argv[1:] or list(parts)
    figures: Figures = {}
    for name in selected:
        figures |= parts[name](job, details)
    finish("own_code", figures, TARGETS, details, part=selected != list(parts))


def measuring(job: Job, details: dict[str, object]) -> Figures:
    """Measure the overhead in one run of the script.

    In alternating windows the replicas are observed as a session does, and left alone. The cost of `log_samples` is
    added.
    """
    allocation = Allocation.of(2, 0, 0.7, 1.0, job.training.batch_size)
    launcher = LocalLauncher(f"measuring-{os.getpid()}")
    with tempfile.TemporaryDirectory() as logs:
        run = Run(job.with_absolute_path(), allocation, launcher, Path(logs))
        try:
            run.start({})
            run.await_reports()
            run.hold()
            time.sleep(3.0)
            rates = [window_rate(run, watched=i % 2 == 0) for i in range(2 * WINDOWS)]
        finally:
            run.end(0.0)
            launcher.close()
    ratios = [alone / watched - 1 for watched, alone in zip(rates[::2], rates[1::2], strict=True)]
    half = float(stats.sem(ratios) * stats.t.ppf(0.975, len(ratios) - 1))
    step_s, call_s = 2 * job.training.batch_size / float(np.median(rates)), call_seconds()
    details |= {"overhead_windows": ratios, "step_s": step_s}
    print(
        f"observed against left alone: {np.mean(ratios):+.4f} ± {half:.4f} of a step of {1e3 * step_s:.0f} ms",
        flush=True,
    )
    return {
        "log_samples_us": 1e6 * call_s,
        "measuring_overhead": float(np.mean(ratios)) + call_s / step_s,
        "measuring_overhead_half_width": half,
    }


def window_rate(run: Run, *, watched: bool) -> float:
    """Return samples/s of one window, from the reports of the replicas at its ends."""
    run.observe()
    first, end = [reports[-1] for reports in run.series()], time.monotonic() + WINDOW_S
    while time.monotonic() < end:
        time.sleep(LOOK_S if watched else WINDOW_S)
        run.observe()
    last = [reports[-1] for reports in run.series()]
    return sum((b.samples - a.samples) / (b.at_s - a.at_s) for a, b in zip(first, last, strict=True))


def agreement(job: Job, details: dict[str, object]) -> Figures:
    """Measure the error of the observed throughput against the script's own final count."""
    errors = [error(job.with_samples(SAMPLES), Allocation.of(2, 0, 0.7, 1.0, 512)) for _ in range(RUNS)]
    details |= {"errors": errors}
    return {"throughput_error": float(np.mean(errors)), "throughput_error_worst": float(np.max(errors))}


def error(job: Job, allocation: Allocation) -> float:
    """Return the error of one complete run in a session."""
    with tempfile.TemporaryDirectory() as logs, CommandSession(job, logs=logs) as session:
        session.scale(allocation)
        while not session.wait(0.25):
            session.observe()
        series = session.reports()
        text = next(Path(logs).rglob("worker-0.log")).read_text()
    begin, end = max(reports[0].at_s for reports in series), min(reports[-1].at_s for reports in series)
    counts = [np.interp([begin, end], [r.at_s for r in reports], [r.samples for r in reports]) for reports in series]
    observed, counted = float(sum(np.diff(each)[0] for each in counts)) / (end - begin), counted_rate(text)
    print(f"observed {observed:,.0f}, own count {counted:,.0f} samples/s", flush=True)
    return abs(observed / counted - 1)


def call_seconds(calls: int = 20_000) -> float:
    """Return the seconds of one call of `log_samples`."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        start = time.perf_counter()
        for _ in range(calls):
            sw.log_samples(512, data_s=0.001, compute_s=0.002, push_s=0.001)
        took = time.perf_counter() - start
        del os.environ[VARIABLE]
    return took / calls


def counted_rate(text: str) -> float:
    """Return samples/s according to the script's final count."""
    match = FINAL.search(text)
    if not match:
        raise SystemExit(f"The script printed no final count: {text[-500:]}")
    return int(match[1]) / float(match[2])


def answer(job: Job, details: dict[str, object]) -> Figures:
    """Profile six allocations, recommend one, and measure the objective there and at allocations across the bounds."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/trials.db"
        start = time.monotonic()
        trials = sw.profile(job, store=store, trials=TRIALS, accept_drift=True)
        took = time.monotonic() - start
        recommendation = sw.recommend(job, store=store)
    if recommendation.target is None and not SMOKE:
        raise SystemExit(f"No recommendation: {recommendation.reasons} {recommendation.remedies}")
    chosen = recommendation.target or Allocation.of(1, 0, 0.7, 1.0, job.training.batch_size)
    print(f"profile of {len(trials)} starts in {took:.0f} s; target {chosen.describe()}", flush=True)
    target = (chosen.replicas("worker"), chosen.worker[0].cpu)
    scores = objectives(job, sorted({target} | evenly_spaced(job)))
    best = min(scores, key=lambda size: scores[size])
    details |= {"objectives": {str(k): v for k, v in scores.items()}, "target": str(target), "best": str(best)}
    return {"profile_s": took, "regret": scores[target] / scores[best] - 1}


def evenly_spaced(job: Job) -> set[tuple[int, float]]:
    """Return evenly spaced allocations of the grid that fit this host."""
    grid = make_grid(job.bounds, job.training.batch_size, has_ps=False)
    fits = [(int(w), float(c)) for w, c in zip(grid.workers, grid.worker_cpu, strict=True) if w * c <= 1.6 + 1e-9]
    return {fits[i] for i in np.linspace(0, len(fits) - 1, min(CHECKED, len(fits))).round().astype(int)}


def objectives(job: Job, sizes: list[tuple[int, float]]) -> dict[tuple[int, float], float]:
    """Return time × cost of each size, from the mean of two trials, one in each order of the sizes."""
    rates: dict[tuple[int, float], list[float]] = {size: [] for size in sizes}
    with CommandSession(job, trial=True) as session:
        for size in [*sizes, *reversed(sizes)][: choose(2 * len(sizes), 2 * len(sizes), len(sizes))]:
            point = TrialPoint(Allocation.of(size[0], 0, size[1], 1.0, job.training.batch_size))
            trial = measure_command(session, point, TIMING)
            rates[size].append(trial.throughput or 0.0)
            print(f"{size}: {trial.throughput:,.0f} samples/s", flush=True)
    scores = {}
    for (workers, cores), throughputs in rates.items():
        rate = float(np.mean(throughputs))
        scores[workers, cores] = hourly_price(job.prices, cores=workers * cores) / rate**2
    return scores


if __name__ == "__main__":
    main()
