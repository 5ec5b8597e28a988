"""Elastic training: the cost of changes, the overhead of elasticity, and the quality of the model afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks._elastic_auc import auc
from benchmarks._elastic_pauses import Pauses, move_pauses, reserve_seconds, saturated, scale_pauses, time_lost
from benchmarks._report import SMOKE, choose, finish
from benchmarks._trials import BRIEF, load_ahead, measure_valid
from sizewright.profiler.measure.host_speed import measure_host_speed
from sizewright.profiler.measure.measure import Timing, measure
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.space_filling import SpaceFillingPlanner
from sizewright.spec import Allocation, Job
from sizewright.training.host.capacity import host_cores
from sizewright.training.session import Session

SHAPE = Path(__file__).parent / "shape.yaml"
TARGETS = {
    "scale_out_excess_ms": "≤ median_step_ms and ≤ 200",
    "scale_in_excess_ms": "≤ median_step_ms and ≤ 200",
    "ps_move_excess_ms": "≤ median_step_ms and ≤ 200",
    "scale_out_excess_saturated_ms": "≤ median_step_saturated_ms and ≤ 200",
    "scale_in_excess_saturated_ms": "≤ median_step_saturated_ms and ≤ 200",
    "ps_move_excess_saturated_ms": "≤ median_step_saturated_ms and ≤ 200",
    "stop_resume_ratio": "≥ 20, or live_lost_steps < 1",
    "live_lost_steps": "< 1",
    "join_reserve_s": "≤ 0.5",
    "steady_overhead": "≥ 0.98",
    "train_efficiency": "≥ 0.95",
    "train_efficiency_dense1": "≥ 0.85",
    "train_efficiency_4": "≥ 0.85",
    "profile_overhead": "≤ 1.5",
    "profile_overhead_share": "≤ 0.25 of a separate start",
    "auc_gap": "≤ 0.005",
}
PAIRS = choose(5, 3, 1)
OVERHEAD_PAIRS = choose(8, 3, 1)
CHANGES = choose(10, 4, 1)
AROUND_S = choose(30.0, 10.0, 1.0)
SEEDS = choose(5, 2, 1)
LONG = choose(Timing(min_s=5, max_s=6), Timing(min_s=5, max_s=6), BRIEF)
SETTLED_S, STEADY_S = choose((13.0, 10.0), (13.0, 10.0), (2.0, 1.0))
SINGLE_S = choose("5", "5", "0.5")

Figures = dict[str, float]


def main() -> None:
    details: dict[str, object] = {}
    parts = {
        "pauses": pauses,
        "lost": lost,
        "joining": joining,
        "overhead": overhead,
        "efficiency": efficiency,
        "profile": profile,
        "auc": auc_gap,
    }
    selected = sys.argv[1:] or list(parts)
    figures: Figures = {}
    for name in selected:
        print(f"— {name}", flush=True)
        figures |= parts[name](details)
        gc.collect()
    finish("elasticity", figures, TARGETS, details, part=selected != list(parts))


def shape(*, dense_sync_steps: int = 8, rows: int | None = None) -> Job:
    job = Job.load(SHAPE)
    changes: dict[str, object] = {
        "training": job.training.model_copy(update={"dense_sync_steps": dense_sync_steps}),
    }
    if rows is not None or SMOKE:
        tables = job.model.tables.model_copy(update={"max_rows": 1000 if SMOKE else rows})
        changes["model"] = job.model.model_copy(update={"tables": tables})
    return job.model_copy(update=changes)


def pauses(details: dict[str, object]) -> Figures:
    """Measure the worst excess of all changes, with quotas of 1.5 cores in total and with busy cores."""
    by_change, moved = _pauses_now()
    with saturated(int(host_cores())):
        busy = by_change if SMOKE else _pauses_now()[0]
    by_change |= {f"{name}_saturated": p for name, p in busy.items()}
    details["pauses"] = {name: p._asdict() for name, p in by_change.items()} | {"rows_moved": moved}
    for name, p in by_change.items():
        print(
            f"{name}: excess {np.round(p.excess_ms)}, baseline {p.usual_ms:.0f}, median step {p.median_step_ms:.0f} ms"
        )
    figures = {f"{n.replace('_saturated', '')}_excess{'_saturated' * n.endswith('saturated')}_ms": max(p.excess_ms)
               for n, p in by_change.items()}  # fmt: skip
    figures |= {
        name.replace("_ms", "_median_ms"): float(np.median(p.excess_ms))
        for name, p in zip(figures, by_change.values(), strict=True)
    }
    return figures | {"median_step_ms": by_change["scale_out"].median_step_ms,
                      "median_step_saturated_ms": by_change["scale_out_saturated"].median_step_ms,
                      "rows_moved": float(moved)}  # fmt: skip


def _pauses_now() -> tuple[dict[str, Pauses], int]:
    """Return the pauses by kind of change, and the number of rows that a PS moved."""
    by_change: dict[str, Pauses] = scale_pauses(shape(), CHANGES)
    by_change["ps_move"], moved = move_pauses(shape(rows=200_000), CHANGES)
    return by_change, moved


def lost(details: dict[str, object]) -> Figures:
    """Measure the training time lost by replacing a PS, live and by stop-and-resume."""
    seconds = time_lost(shape(rows=200_000), choose(3, 1, 1), AROUND_S)
    details["time_lost"] = seconds._asdict()
    print(seconds)
    live, stopped = float(np.median(seconds.live_s)), float(np.median(seconds.stopped_s))
    return {
        # The result without a change, which is the resolution of the method.
        "nothing_lost_s": float(np.median(np.abs(seconds.nothing_s))),
        "live_lost_steps": live / seconds.median_step_s,
        "live_lost_s": live,
        "live_lost_worst_s": max(seconds.live_s),
        "stop_resume_lost_s": stopped,
        # A live change may lose less than the resolution; the ratio then uses a median step.
        "stop_resume_ratio": stopped / max(live, seconds.median_step_s),
    }


def joining(details: dict[str, object]) -> Figures:
    """Measure the seconds until one more worker trains."""
    by_start = reserve_seconds(shape(), choose(4, 2, 1))
    details["joining_s"] = by_start
    print(by_start)
    return {f"join_{name}_s": float(np.median(seconds)) for name, seconds in by_start.items()}


def overhead(details: dict[str, object]) -> Figures:
    """Compare a session with snapshots, recovery and an observer with a plain loop under the same limits, in pairs."""
    job, ratios = shape(), []
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(SHAPE.read_text().replace("batch_size: 512", "batch_size: 512, dense_sync_steps: 8"))
        file.flush()
        for i in range(OVERHEAD_PAIRS):
            ours = elastic_rate(job) if i % 2 == 0 else 0.0
            command = [sys.executable, "-m", "benchmarks._plain_loop", file.name, f"{STEADY_S:g}", "0.8", "0.4"]
            plain = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            ours = ours or elastic_rate(job)
            ratios.append(ours / plain)
            print(f"elastic {ours:,.0f}, plain {plain:,.0f} samples/s: {ratios[-1]:.3f}", flush=True)
    mean, half = float(np.mean(ratios)), half_width(ratios)
    details["overhead_pairs"] = ratios
    return {
        "steady_overhead": mean,
        "steady_overhead_low": mean - half,
        "steady_overhead_high": mean + half,
    }


def half_width(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of the mean, by Student's t."""
    return float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))


def elastic_rate(job: Job) -> float:
    """Return samples/s of an elastic session in its steady state."""
    with Session(job, snapshot_s=10.0, recover=True) as session:
        session.scale(Allocation.of(1, 1, 0.8, 0.4, 512))
        time.sleep(SETTLED_S)  # the first snapshot, which contains everything, is done
        first, start = session.observe(), time.monotonic()
        while time.monotonic() - start < STEADY_S:
            time.sleep(1)
            last = session.observe()
        a, b = first.of("worker")[0], last.of("worker")[0]
        return (b.samples - a.samples) / (b.last_step_at_s - a.last_step_at_s)


def efficiency(details: dict[str, object], only: str | None = None) -> Figures:
    """Compare samples/s per worker core with the fastest single-process loop on one core, in pairs.

    `only` selects one case.
    """
    cases = {
        "train_efficiency": (shape(), Allocation.of(1, 1, 1.0, 0.6, 512)),
        "train_efficiency_dense1": (shape(dense_sync_steps=1), Allocation.of(1, 1, 1.0, 0.6, 512)),
        "train_efficiency_4": (shape(), Allocation.of(4, 1, 0.3, 0.4, 512)),
    }
    figures: Figures = {}
    for name, (job, allocation) in list(cases.items())[: choose(len(cases), len(cases), 1)]:
        if only not in (None, name):
            continue
        ratios, shares = [], []
        with Session(job) as session:
            for _ in range(PAIRS):
                trial = measure_valid(session, TrialPoint(allocation), LONG)
                session.discard()
                command = [sys.executable, "-m", "benchmarks._single_process", str(SHAPE), SINGLE_S]
                single = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                per_core = (trial.throughput or 0.0) / allocation.cores("worker")
                ratios.append(per_core / single)
                shares.append((trial.ps_cpu_used or 0.0) / allocation.cores("worker"))
                print(f"{name}: {per_core:,.0f} per core, single process {single:,.0f}: {ratios[-1]:.3f}", flush=True)
        details[name] = ratios
        figures |= {name: float(np.median(ratios)), f"{name}_ps_cores": float(np.median(shares))}
    return figures


def profile(details: dict[str, object]) -> Figures:
    """Measure the overhead of a trial, in one shrinking session and with a separate start for each trial."""
    job = shape()
    planner = SpaceFillingPlanner(job, host_cores() * 0.8, count=8)
    points = [point for point in planner.points if point.table_scale == 1.0][: choose(8, 8, 2)]
    start = time.monotonic()
    with Session(job) as session:
        load_ahead(session, points)
        once = time.monotonic() - start
        shrinking = [_not_measuring(session, point, first=i == 0) for i, point in enumerate(points)]
        stopping = time.monotonic()
    once += time.monotonic() - stopping
    separate = []
    for point in points[::3]:
        start = time.monotonic()
        with Session(job) as session:
            up = time.monotonic() - start
            separate.append(up + _not_measuring(session, point, first=True))
            stopping = time.monotonic()
        separate[-1] += time.monotonic() - stopping
    details["profile"] = {"shrinking_s": shrinking, "once_s": once, "separate_s": separate}
    print(np.round(shrinking, 2), round(once, 2), np.round(separate, 2))
    mean, with_start = float(np.mean(shrinking)), float(np.mean(shrinking)) + once / len(points)
    return {
        "profile_overhead": mean,
        # Includes a share of the start and stop of the session, which a separate start pays for each trial.
        "profile_overhead_with_start": with_start,
        "profile_overhead_share": mean / float(np.mean(separate)),
        "profile_overhead_share_with_start": with_start / float(np.mean(separate)),
    }


def _not_measuring(session: Session, point: TrialPoint, *, first: bool) -> float:
    """Return the overhead of a trial as the profiler runs it, with its measurement of the host's speed."""
    start = time.monotonic()
    session.pause()
    measure_host_speed()
    timing = choose(Timing(), Timing(), BRIEF)
    if first:
        timing = replace(timing, warm_up_s=timing.first_warm_up_s)
    trial = measure(session, point, timing)
    return time.monotonic() - start - (trial.duration_s or 0.0)


def auc_gap(details: dict[str, object]) -> Figures:
    """Compare the AUC of static and elastic runs, which have seven changes and a kill, over several seeds.

    Two static runs of a seed also differ, because workers race; that difference is reported as well.
    """
    static, again, elastic = [], [], []
    for seed in range(SEEDS):
        quality, _ = auc(seed, elastic=False)
        disturbed, outcome = auc(seed, elastic=True)
        static.append(quality)
        elastic.append(disturbed)
        again.append(quality if SMOKE else auc(seed, elastic=False)[0])
        if not SMOKE and (len(outcome.changes) < 6 or not outcome.failures):
            raise SystemExit(f"seed {seed}: {len(outcome.changes)} changes and {len(outcome.failures)} failures")
        summary = (
            f"{len(outcome.changes)} changes, {len(outcome.failures)} failures, {outcome.updates_lost} updates lost"
        )
        print(f"seed {seed}: static {quality:.4f}, elastic {disturbed:.4f} ({summary})", flush=True)
    details["auc"] = {"static": static, "static_again": again, "elastic": elastic}
    gaps = np.array(static) - np.array(elastic)
    return {
        "auc_gap": abs(float(gaps.mean())),
        "auc_gap_half_width": half_width(gaps.tolist()),
        "auc_gap_worst_seed": float(np.abs(gaps).max()),
        "auc_gap_of_two_static": abs(float(np.mean(static) - np.mean(again))),
        "auc_static": float(np.mean(static)),
    }


if __name__ == "__main__":
    main()
