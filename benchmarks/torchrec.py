"""Placement of embedding tables on servers or ranks, compared with simple rules: `make bench NAME=torchrec`.

Sets of tables are drawn with rows, dimensions and poolings of several sizes; memory is 1.2 times the mean. In tight
sets whole tables are known to fit, with 1.01 times the mean; `tight_placed` is the share of these that is placed.
Loads are compared with round-robin, and with size-greedy: the largest table goes to the server with the least memory
in use. Both place whole tables, so ours does, too, in `whole_*`.

The parts `planner`, `table_memory` and `own_planner` run real TorchRec on CPU: with the Python that `TORCHREC_PYTHON`
names, or in an environment of their own. `planner` measures sharding plans, fits the planner's constants to one half
and compares its estimates of the other. `table_memory` compares the predicted bytes of weights and optimizer state with
the resident memory that tables add to a TorchRec process. `own_planner` compares the largest load of whole tables, in
the times that TorchRec's planner estimates of each, with that of TorchRec's plan. `bottlenecks`, `answer` and `counted`
profile, size and run the scripts of `examples/torchrec`; `engine` trains one shape with TorchRec and with our engine.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._report import SMOKE, choose, finish
from benchmarks._torchrec_sizing import PARTS as SIZING
from sizewright.errors import InputError
from sizewright.models.memory.memory_model import table_bytes
from sizewright.profiler.torchrec.calibrate import calibrate
from sizewright.profiler.torchrec.cases import Case, Table
from sizewright.profiler.torchrec.ranks import run_task
from sizewright.recommender.table_placement.place import place_tables
from sizewright.spec import Job, Model, Tables

COUNTS = choose((26, 50, 100, 200, 500), (26, 100, 500), (26,))
SERVERS = choose((4, 8, 16), (4, 8, 16), (4,))
SETS = choose(5, 3, 1)
TIGHT_SETS = choose(60, 20, 3)
TARGETS = {
    "placement_gap": "≤ 0.02 (the largest of all)",
    "placement_s": "≤ 1 (the longest)",
    "load_vs_size_greedy": "< 1 (mean)",
    "planner_error_calibrated": "≤ 0.20 and planner_error_ratio ≤ 0.25 (median over held-out plans)",
    "table_memory_error": "≤ 0.10 (median)",
    "load_vs_torchrec": "≤ 1 (mean)",
    "bottleneck_named": "1.0 (share of the cases)",
    "regret": "≤ 0.05 (mean over passes)",
    "throughput_error": "≤ 0.03 (median over trials)",
    "engine_over_torchrec": "≥ 1 (samples/s on one pinned core each, in pairs)",
}
PLANS, RANKS = choose(48, 12, 12), 2
SEED = 1
"""Of the planner's tables: others than those of `sizewright calibrate torchrec`, with which its form was chosen."""
MEMORY_SETS = choose(12, 6, 2)
Details = dict[str, object]
Figures = dict[str, float]
Floats = NDArray[np.float64]


def main() -> None:
    parts = {"placement": placement, "planner": planner, "table_memory": table_memory, "own_planner": own_planner}
    parts |= SIZING
    selected = sys.argv[1:] or list(parts)
    if SMOKE and not sys.argv[1:] and "TORCHREC_PYTHON" not in os.environ:
        selected = ["placement"]  # the others need TorchRec
    details: Details = {}
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="torchrec-") as folder:
        for name in selected:
            figures |= parts[name](details, functools.cache(lambda: torchrec_python(Path(folder) / "environment")))
    finish("torchrec", figures, TARGETS, details, part=selected != list(parts))


def torchrec_python(folder: Path) -> str:
    """Return a Python with TorchRec: the one that is named, or that of a new environment in the folder."""
    if named := os.environ.get("TORCHREC_PYTHON"):
        return named
    from tests.helpers.torchrec_environment import make_environment

    return str(make_environment(folder) / "python")


def placement(details: Details, _: Any) -> Figures:
    """Place drawn tables, and compare loads with those of simple rules."""
    rng = np.random.default_rng(1)
    gaps, whole_gaps, seconds = list[float](), list[float](), list[float]()
    over_greedy, over_round_robin, split = list[float](), list[float](), list[float]()
    for count in COUNTS:
        for servers in SERVERS:
            for _ in range(SETS):
                job, load, size = drawn(rng, count)
                began = time.perf_counter()
                ours = place_tables(job, servers, memory_bytes=int(1.2 * size.sum() / servers))
                seconds.append(time.perf_counter() - began)
                gaps.append(ours.gap)
                split.append(len(ours.split) / count)
                whole = place_tables(job, servers, whole=True)
                whole_gaps.append(whole.gap)
                over_greedy.append(whole.largest_load / size_greedy(load, size, servers))
                over_round_robin.append(whole.largest_load / round_robin(load, servers))
    details |= {"gaps": gaps, "whole_gaps": whole_gaps}
    tight, tight_s = list[bool](), list[float]()
    for _ in range(TIGHT_SETS):
        job, servers, memory_bytes = tight_job(rng)
        began = time.perf_counter()
        try:
            place_tables(job, servers, memory_bytes=memory_bytes, whole=True)
            tight.append(True)
        except InputError:
            tight.append(False)
        tight_s.append(time.perf_counter() - began)
    return {
        "tight_placed": float(np.mean(tight)),
        "tight_placement_s": max(tight_s),
        "sets": float(len(gaps)),
        "placement_gap": max(gaps),
        "placement_s": max(seconds),
        "split_tables": float(np.mean(split)),
        "whole_gap": float(np.median(whole_gaps)),
        "load_vs_size_greedy": float(np.mean(over_greedy)),
        "load_vs_round_robin": float(np.mean(over_round_robin)),
    }


def planner(details: Details, python: Any) -> Figures:
    """Calibrate the planner and compare its estimates of held-out plans with measured steps and peaks."""
    calibration = calibrate(python(), ranks=RANKS, plans=PLANS, seed=SEED)
    details["planner"] = calibration.to_dict()
    print(calibration)
    return {
        "plans_held_out": float(sum(plan.held_out for plan in calibration.plans)),
        "planner_error_default": calibration.default_error,
        "planner_error_rescaled": calibration.rescaled_error,
        "planner_error_calibrated": calibration.calibrated_error,
        "planner_error_ratio": calibration.calibrated_error / calibration.default_error,
        "planner_order_default": calibration.default_order,
        "planner_order_calibrated": calibration.calibrated_order,
        "storage_error_default": calibration.default_storage_error,
        "storage_error_calibrated": calibration.calibrated_storage_error,
    }


def table_memory(details: Details, python: Any) -> Figures:
    """Predict the bytes of sets of tables, and measure what a TorchRec process takes for them."""
    rng = np.random.default_rng(2)
    cases, predicted = list[Case](), list[float]()
    for number in range(MEMORY_SETS):
        count = int(rng.integers(4, 17))
        rows = np.exp(rng.uniform(np.log(1e4), np.log(3e5), count)).astype(int)
        dims, poolings = rng.choice([8, 16, 32, 64, 128], count), rng.choice([1, 1, 2, 5, 20], count)
        tables = tuple(Table(*map(int, each)) for each in zip(rows, dims, poolings, strict=True))
        optimizer = ("rowwise_adagrad", "adagrad")[number % 2]
        whole = ("table_wise",) * count
        cases.append(Case(number, number, "table_wise", tables, whole, 256, 1, True, optimizer=optimizer))
        columns = {
            "rows": [t.rows for t in tables],
            "dim": [t.dim for t in tables],
            "pooling": [t.pooling for t in tables],
        }
        model = {"tables": {"count": count, **{name: tuple(each) for name, each in columns.items()}}}
        predicted.append(table_bytes(Job.model_validate({"model": {**model, "optimizer": optimizer}})))
    tasks = [case.to_task() for case in cases]
    (answer,) = run_task(python(), "memory", tasks, ranks=1, timeout_s=600.0)
    measured = [each["resident"] for each in answer["memory"]]
    errors = [abs(ours / real - 1) for ours, real in zip(predicted, measured, strict=True)]
    details["table_memory"] = [
        {"tables": len(case.tables), "optimizer": case.optimizer, "predicted_bytes": ours, "resident_bytes": real}
        for case, ours, real in zip(cases, predicted, measured, strict=True)
    ]
    return {
        "memory_sets": float(len(cases)),
        "table_memory_error": float(np.median(errors)),
        "table_memory_error_worst": max(errors),
    }


def own_planner(details: Details, python: Any) -> Figures:
    """Place whole tables as TorchRec's planner does, and with `place`, and compare the largest load."""
    rng = np.random.default_rng(3)
    cases, jobs = list[Case](), list[Job]()
    for count in COUNTS:
        for servers in SERVERS:
            job, _, _ = drawn(rng, count)
            sizes = zip(job.model.tables.sizes(), job.model.tables.dims, job.model.tables.poolings, strict=True)
            tables, whole = tuple(Table(rows, dim, int(ids)) for rows, dim, ids in sizes), ("table_wise",) * count
            cases.append(Case(len(cases), len(cases), "table_wise", tables, whole, 512, servers, True))
            jobs.append(job)
    (answer,) = run_task(python(), "place", [case.to_task() for case in cases], ranks=1, timeout_s=1200.0)
    ratios, seconds = list[float](), list[float]()
    for case, job, theirs in zip(cases, jobs, answer["placements"], strict=True):
        times = np.array(theirs["times_ms"])
        largest = float(np.bincount(theirs["ranks"], times, case.ranks).max() / times.sum())
        ours = place_tables(job, case.ranks, loads=list(times), whole=True)
        ratios.append(ours.largest_load / largest)
        seconds.append(theirs["seconds"])
    details["load_vs_torchrec"] = ratios
    return {
        "load_vs_torchrec": float(np.mean(ratios)),
        "load_vs_torchrec_worst": max(ratios),
        "torchrec_planner_s": max(seconds),
    }


def drawn(rng: np.random.Generator, count: int) -> tuple[Job, Floats, Floats]:
    """Return a job with random tables, and the load and the bytes of each."""
    rows = np.exp(rng.uniform(np.log(10), np.log(1e7), count)).astype(int)
    dims, poolings = rng.choice([8, 16, 32, 64, 128], count), rng.choice([1, 1, 1, 5, 20, 50], count)
    columns = {"rows": rows, "dim": dims, "pooling": poolings}
    tables = Tables.model_validate({"count": count, **{name: tuple(map(int, each)) for name, each in columns.items()}})
    return Job(model=Model(tables=tables)), (dims * poolings).astype(float), (rows * dims * 8).astype(float)


def tight_job(rng: np.random.Generator) -> tuple[Job, int, int]:
    """Return a job whose whole tables fit, the number of servers, and the memory of each, 1.01 times the mean.

    The tables are the parts of equally large servers that were cut at random, so that a placement is known.
    """
    servers, parts, row_bytes = int(rng.choice([2, 4, 8])), int(rng.integers(2, 7)), 64
    cuts = [np.sort(rng.uniform(0, 1, parts - 1)) for _ in range(servers)]
    shares = np.concatenate([np.diff(np.r_[0.0, each, 1.0]) for each in cuts])
    rows = np.maximum(1, (rng.permutation(shares) * 1e7).astype(int))
    tables = {"count": rows.size, "rows": tuple(map(int, rows)), "dim": row_bytes // 4, "optimizer": "sgd"}
    return Job.model_validate({"model": {"tables": tables}}), servers, int(1.01e7 * row_bytes)


def size_greedy(load: Floats, size: Floats, servers: int) -> float:
    """Return the largest share of the load, where tables go by size to the server with the least memory in use."""
    used, filled = np.zeros(servers), np.zeros(servers)
    for table in np.argsort(-size):
        server = int(np.argmin(used))
        used[server] += size[table]
        filled[server] += load[table]
    return float(filled.max() / load.sum())


def round_robin(load: Floats, servers: int) -> float:
    """Return the largest share of the load, where tables go to the servers in turn."""
    return float(np.bincount(np.arange(load.size) % servers, load, servers).max() / load.sum())


if __name__ == "__main__":
    main()
