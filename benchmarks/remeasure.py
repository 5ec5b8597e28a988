"""Check of replayed picks: the pick and the best allocations of each grid are measured again, side by side.

The pick of a replay after 8 trials and the five best allocations of the smoothed table, under `balanced`, take turns in
one session, five times each. The regret is computed from the medians. `python -m benchmarks.remeasure [GRID...]`; grids
behind links need root.
"""

from __future__ import annotations

import json
import os
import random
import sys

import numpy as np
import pandas as pd

from benchmarks._baselines import default_planner
from benchmarks._measured import TABLES
from benchmarks._regret import Truth
from benchmarks._replays import replay_planner
from benchmarks._report import choose, finish
from benchmarks._trials import load_ahead
from benchmarks.grids import DELAY, GRIDS, NODES, TIMING, TrialList
from sizewright.profiler.planner.candidates import CandidateSet
from sizewright.profiler.planner.measured_table import MeasuredTable, one_table, read_frame
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.series import run_series
from sizewright.profiler.series.space_filling import QueuePlanner
from sizewright.spec import Allocation
from sizewright.training.session import Session
from tests.helpers.network.testbed import Bed

SCORING, TRIALS, ROUNDS, TOP = "balanced", 8, choose(5, 2, 1), choose(5, 5, 1)


def candidates_of(table: MeasuredTable) -> tuple[int, list[int]]:
    """Return the pick of a replay, and all candidates to measure."""
    pick = replay_planner(default_planner, table, SCORING, TRIALS, seed=0).pick
    truth = Truth(table.smoothed[0], CandidateSet(table.allocations).hourly_price)
    regrets = [truth.regret(i, SCORING) for i in range(len(table))]
    return pick, sorted({pick, *np.argsort(regrets)[:TOP].tolist()})


def measure(name: str) -> dict[str, float]:
    """Return the regret of the pick from the raw table, the smoothed table, and the new measurements."""
    table = one_table(read_frame(TABLES / f"{name}.csv"), name)
    pick, chosen = candidates_of(table)
    job = GRIDS[name].job(name)
    by_axes = {_place(a): a for a in GRIDS[name].allocations(job)}
    axes = table.allocations[["workers", "ps", "worker_cpu", "ps_cpu"]].to_numpy(float).round(9)
    points = {i: TrialPoint(by_axes[tuple(axes[i].tolist())]) for i in chosen}
    rng, order = random.Random(0), []
    for _ in range(ROUNDS):
        order += rng.sample(chosen, len(chosen))
    measured = TrialList()
    with Session(job, address=os.environ.get("SIZEWRIGHT_ADDRESS")) as session:
        load_ahead(session, points.values())
        for step in run_series(session, QueuePlanner(points[i] for i in order), measured, name, timing=TIMING):
            print(f"{len(measured.trials)}/{len(order)} {step.point.allocation.describe()}: {step.trial.throughput}")
    rates = (
        pd.Series([t.throughput for t in measured.trials], dtype=float).groupby(order).agg(["median", "std", "mean"])
    )
    price = CandidateSet(table.allocations).hourly_price
    again = np.zeros(len(table))
    again[rates.index] = rates["median"]
    return {
        "regret_again": Truth(again, price).regret(pick, SCORING),
        "regret_smoothed": Truth(table.smoothed[0], price).regret(pick, SCORING),
        "regret_raw": Truth(table.raw, price).regret(pick, SCORING),
        "noise": float((rates["std"] / rates["mean"]).median()),
    }


def _place(allocation: Allocation) -> tuple[float, ...]:
    sizes = (allocation.worker[0].cpu, allocation.ps[0].cpu)
    return tuple(round(float(v), 9) for v in (allocation.replicas("worker"), allocation.replicas("ps"), *sizes))


def main() -> None:
    """Measure all grids, or those named on the command line."""
    tables: dict[str, dict[str, float]] = {}
    for name in sys.argv[1:] or choose(list(GRIDS), list(GRIDS), ["counts"]):
        rate = GRIDS[name].rate
        if rate and "SIZEWRIGHT_ADDRESS" not in os.environ:
            with Bed(NODES, rate, DELAY) as bed:
                done = bed.run([sys.executable, "-m", "benchmarks.remeasure", name], timeout_s=1800)
            print(done.stdout, done.stderr, sep="\n")
            tables |= json.loads(done.stdout.splitlines()[-1])["tables"]
        else:
            tables[name] = measure(name)
    mean = {key: float(np.mean([row[key] for row in tables.values()])) for key in next(iter(tables.values()))}
    finish("remeasure", mean, {"regret_again": "≤ 0.03"}, tables=tables, keep=not sys.argv[1:])


if __name__ == "__main__":
    main()
