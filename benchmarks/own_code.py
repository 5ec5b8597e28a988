"""The user's own code: what measuring it costs, whether its own count agrees, and how good the answer is."""

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
_FULL = Timing(least_s=4, greatest_s=8, target_se=0.01)
TIMING = choose(_FULL, _FULL, BRIEF)

Figures = dict[str, float]


def main() -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    details: dict[str, object] = {}
    job = Job.load(EXAMPLE)
    parts = {"measuring": measuring, "agreement": agreement, "answer": answer}
    wanted = sys.argv[1:] or choose(list(parts), list(parts), ["measuring"])
    figures: Figures = {}
    for name in wanted:
        figures |= parts[name](job, details)
    finish("own_code", figures, TARGETS, details, part=wanted != list(parts))


def measuring(job: Job, details: dict[str, object]) -> Figures:
    """One run of the script, whose replicas are looked at as a session does and left alone, in windows that take
    turns; what `log_samples` costs is added."""
    allocation = Allocation.of(2, 0, 0.7, 1.0, job.training.batch_size)
    place = LocalLauncher(f"measuring-{os.getpid()}")
    with tempfile.TemporaryDirectory() as logs:
        run = Run(job.with_absolute_path(), allocation, place, Path(logs))
        try:
            run.start({})
            run.await_reports()
            run.hold()
            time.sleep(3.0)
            rates = [window_rate(run, watched=i % 2 == 0) for i in range(2 * WINDOWS)]
        finally:
            run.end(0.0)
            place.close()
    ratios = [alone / watched - 1 for watched, alone in zip(rates[::2], rates[1::2], strict=True)]
    half = float(stats.sem(ratios) * stats.t.ppf(0.975, len(ratios) - 1))
    step_s, call_s = 2 * job.training.batch_size / float(np.median(rates)), call_seconds()
    details |= {"overhead_windows": ratios, "step_s": step_s}
    print(
        f"looked at or left alone: {np.mean(ratios):+.4f} ± {half:.4f} of a step of {1e3 * step_s:.0f} ms", flush=True
    )
    return {
        "log_samples_us": 1e6 * call_s,
        "measuring_overhead": float(np.mean(ratios)) + call_s / step_s,
        "measuring_overhead_half_width": half,
    }


def window_rate(run: Run, *, watched: bool) -> float:
    """Samples/s of one window, by what the replicas have told at its ends."""
    run.look()
    first, end = [told[-1] for told in run.series()], time.monotonic() + WINDOW_S
    while time.monotonic() < end:
        time.sleep(LOOK_S if watched else WINDOW_S)
        run.look()
    last = [told[-1] for told in run.series()]
    return sum((b.samples - a.samples) / (b.at_s - a.at_s) for a, b in zip(first, last, strict=True))


def agreement(job: Job, details: dict[str, object]) -> Figures:
    """How far the throughput that is read is from the script's own final count."""
    errors = [error(job.with_samples(SAMPLES), Allocation.of(2, 0, 0.7, 1.0, 512)) for _ in range(RUNS)]
    details |= {"errors": errors}
    return {"throughput_error": float(np.mean(errors)), "throughput_error_worst": float(np.max(errors))}


def error(job: Job, allocation: Allocation) -> float:
    """Of one whole run in a session."""
    with tempfile.TemporaryDirectory() as logs, CommandSession(job, logs=logs) as session:
        session.scale(allocation)
        while not session.wait(0.25):
            session.observe()
        series = session.reports()
        text = next(Path(logs).rglob("worker-0.log")).read_text()
    begin, end = max(told[0].at_s for told in series), min(told[-1].at_s for told in series)
    counts = [np.interp([begin, end], [r.at_s for r in told], [r.samples for r in told]) for told in series]
    read, own = float(sum(np.diff(each)[0] for each in counts)) / (end - begin), own_rate(text)
    print(f"read {read:,.0f}, its own count {own:,.0f} samples/s", flush=True)
    return abs(read / own - 1)


def call_seconds(calls: int = 20_000) -> float:
    """What one call of `log_samples` takes."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        start = time.perf_counter()
        for _ in range(calls):
            sw.log_samples(512, data_s=0.001, compute_s=0.002, push_s=0.001)
        took = time.perf_counter() - start
        del os.environ[VARIABLE]
    return took / calls


def own_rate(text: str) -> float:
    """Samples/s by the script's final count."""
    found = FINAL.search(text)
    if not found:
        raise SystemExit(f"the script told no final count: {text[-500:]}")
    return int(found[1]) / float(found[2])


def answer(job: Job, details: dict[str, object]) -> Figures:
    """A profile of six allocations, its recommendation, and the objective measured there and at allocations that are
    spread over the bounds, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/trials.db"
        start = time.monotonic()
        trials = sw.profile(job, store=store, trials=TRIALS, accept_drift=True)
        took = time.monotonic() - start
        found = sw.recommend(job, store=store)
    if found.target is None and not SMOKE:
        raise SystemExit(f"no recommendation: {found.reasons} {found.remedies}")
    chosen = found.target or Allocation.of(1, 0, 0.7, 1.0, job.training.batch_size)
    print(f"profile of {len(trials)} starts in {took:.0f} s; target {chosen.describe()}", flush=True)
    target = (chosen.replicas("worker"), chosen.worker[0].cpu)
    scores = objectives(job, sorted({target} | spread(job)))
    best = min(scores, key=lambda place: scores[place])
    details |= {"objectives": {str(k): v for k, v in scores.items()}, "target": str(target), "best": str(best)}
    return {"profile_s": took, "regret": scores[target] / scores[best] - 1}


def spread(job: Job) -> set[tuple[int, float]]:
    """Allocations of the grid that this host can hold, the most evenly spread ones."""
    grid = make_grid(job.bounds, job.training.batch_size, has_ps=False)
    fits = [(int(w), float(c)) for w, c in zip(grid.workers, grid.worker_cpu, strict=True) if w * c <= 1.6 + 1e-9]
    return {fits[i] for i in np.linspace(0, len(fits) - 1, min(CHECKED, len(fits))).round().astype(int)}


def objectives(job: Job, places: list[tuple[int, float]]) -> dict[tuple[int, float], float]:
    """Completion time × cost of each place, from the mean of two trials of it, one in either order of places."""
    rates: dict[tuple[int, float], list[float]] = {place: [] for place in places}
    with CommandSession(job, trial=True) as session:
        for place in [*places, *reversed(places)][: choose(2 * len(places), 2 * len(places), len(places))]:
            point = TrialPoint(Allocation.of(place[0], 0, place[1], 1.0, job.training.batch_size))
            trial = measure_command(session, point, TIMING)
            rates[place].append(trial.throughput or 0.0)
            print(f"{place}: {trial.throughput:,.0f} samples/s", flush=True)
    found = {}
    for (workers, cores), told in rates.items():
        rate = float(np.mean(told))
        found[workers, cores] = hourly_price(job.prices, cores=workers * cores) / rate**2
    return found


if __name__ == "__main__":
    main()
