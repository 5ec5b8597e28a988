"""Measures whole grids of allocations: the tables that models and planners are judged on.

`python -m benchmarks.grids NAME...` writes `benchmarks/tables/NAME.csv` (the trial table) and `NAME.json` (how it was
measured). Allocations come in random order, so that the host's drift is noise and not a slope; some are measured
again at other times, which tells how large that noise is. With MORE=1 the trials are added to those that there are.
Grids behind links are measured on the test bed (needs root).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks._report import QUICK, choose, commit, finish, host
from benchmarks._trials import BRIEF, load_ahead
from sizewright.datasets.trials.files import export_trials, import_trials
from sizewright.datasets.trials.trial import Trial, now
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.series import run_series
from sizewright.profiler.series.space_filling import QueuePlanner, with_memory
from sizewright.spec import Allocation, Job
from sizewright.spec.model import FIRST_CRITEO_ROWS
from sizewright.training.session import Session
from tests.helpers.network.testbed import Bed

TABLES = Path(__file__).parent / "tables"
MORE = os.environ.get("MORE") == "1"
MOST_CORES = 1.6
PS_MEMORY_BYTES = 3 << 29
REPEATED = 8
NODES, DELAY = 3, "1ms"
_FULL = Timing(least_s=2.5, greatest_s=5.0, target_se=0.015)
TIMING = choose(_FULL, _FULL, BRIEF)


class Grid(NamedTuple):
    """A job, and the values of each axis."""

    model: dict[str, object]
    training: dict[str, object]
    workers: tuple[int, ...]
    ps: tuple[int, ...]
    worker_cpu: tuple[float, ...]
    ps_cpu: tuple[float, ...]
    total_batch: int | None = None
    """Divided over the workers, where it is fixed."""
    rate: str | None = None
    """Of the links that join the machines; None on one host."""

    def job(self, name: str) -> Job:
        """As the profiler takes it."""
        told = {"optimizer": "adagrad", **self.model}
        return Job.model_validate({"name": name, "model": told, "training": self.training})

    def allocations(self, job: Job) -> list[Allocation]:
        """All that this host can hold, with memory enough."""
        memory = MemoryModel(job)
        axes = itertools.product(self.workers, self.ps, self.worker_cpu, self.ps_cpu)
        batch = job.training.batch_size
        fitting = [(w, p, wc, pc) for w, p, wc, pc in axes if w * wc + p * pc <= MOST_CORES + 1e-9]
        sized = [Allocation.of(*axis, self.total_batch // axis[0] if self.total_batch else batch) for axis in fitting]
        return [_roomy(with_memory(allocation, memory)) for allocation in sized]


def _roomy(allocation: Allocation) -> Allocation:
    """A PS that held more rows a moment ago must not die of it: these grids are about speed."""
    ps = tuple(group.model_copy(update={"memory_bytes": PS_MEMORY_BYTES}) for group in allocation.ps)
    return allocation.model_copy(update={"ps": ps})


def _tables(rows: int, dim: int, count: int = 26) -> dict[str, object]:
    return {"count": count, "rows": FIRST_CRITEO_ROWS if count == 26 else rows, "max_rows": rows, "dim": dim}


_LINKED = Grid(
    {"family": "dlrm", "tables": _tables(50_000, 16), "bottom_mlp": [128], "top_mlp": [128]},
    {"batch_size": 512},
    (1, 2, 3, 4), (1, 2), (0.2, 0.35), (0.1, 0.2, 0.3),
)  # fmt: skip

GRIDS = {
    # The shape on which efficiency is measured: workers compute, PS are busy too.
    "mixed": Grid(
        {"family": "dlrm", "tables": _tables(100_000, 16), "bottom_mlp": [512, 256], "top_mlp": [512, 256]},
        {"batch_size": 512},
        (1, 2, 3, 4), (1, 2), (0.15, 0.25, 0.35), (0.1, 0.2, 0.3),
    ),
    # Synchronous, and the batch of all workers together is fixed: more of them may be slower.
    "fixed-batch": Grid(
        {"family": "dcn", "tables": _tables(50_000, 16), "cross_layers": 3, "top_mlp": [256, 128]},
        {"batch_size": 1024, "sync": "sync"},
        (1, 2, 3, 4, 6), (1, 2), (0.15, 0.25, 0.35), (0.1, 0.2, 0.3), total_batch=1024,
    ),
    # Wide rows and little to compute: PS are what limits.
    "wide-rows": Grid(
        {"family": "wide_deep", "tables": _tables(50_000, 64), "top_mlp": [64]},
        {"batch_size": 256},
        (1, 2, 3, 5), (1, 2, 3), (0.15, 0.25), (0.1, 0.15, 0.25),
    ),
    # Machines joined by slow links and by faster ones, and the same job on one host.
    "network": _LINKED._replace(rate="80mbit"),
    "faster-network": _LINKED._replace(rate="200mbit"),
    "loopback": _LINKED,
    # Many small replicas, only their numbers differ.
    "counts": Grid(
        {"family": "dlrm", "tables": _tables(50_000, 32), "bottom_mlp": [128], "top_mlp": [128]},
        {"batch_size": 256},
        (1, 2, 3, 4, 5, 6, 8, 10), (1, 2, 3, 4, 5), (0.1,), (0.1,),
    ),
}  # fmt: skip


class Kept:
    """A list that trials can be added to."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def add(self, trial: Trial) -> None:
        """One more, without the name of this host."""
        self.trials.append(trial.model_copy(update={"host": None, "series": None}))


def measure_grid(name: str) -> int:
    """Measure a grid in one session, here or on the cluster that the environment names; return the trials' number."""
    grid, rng = GRIDS[name], random.Random(0)
    job = grid.job(name)
    allocations = grid.allocations(job)
    points = [TrialPoint(allocation) for allocation in allocations]
    points += rng.sample(points, REPEATED)
    rng.shuffle(points)
    points = points[: choose(len(points), 6, 1)]
    kept, began = Kept(), time.monotonic()
    with Session(job, address=os.environ.get("SIZEWRIGHT_ADDRESS")) as session:
        load_ahead(session, points)
        for step in run_series(session, QueuePlanner(points), kept, name, timing=TIMING):
            told = f"{step.trial.throughput:,.0f} samples/s" if step.trial.throughput else step.trial.message
            print(f"{len(kept.trials)}/{len(points)} {step.point.allocation.describe()}: {told}", flush=True)
    path = TABLES / f"{name}.csv"
    before = import_trials(path) if MORE else []
    passes = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["passes"] if MORE else 0
    about = {
        "measured_at": now().isoformat(timespec="minutes"),
        "seconds": round(time.monotonic() - began),
        "allocations": len(allocations),
        "passes": passes + 1,
        "trials": len(before) + len(kept.trials),
        "not_well": sum(trial.status != "ok" for trial in [*before, *kept.trials]),
        "order": "random in each pass; eight allocations once more",
        "held": "cores by CFS quota (period 20 ms), memory by control groups",
        "links": f"{NODES} machines, {grid.rate} and {DELAY} each" if grid.rate else "loopback",
        "host": host(),
        "job": job.model_dump(mode="json"),
    }
    if not QUICK:
        about["commit"] = commit()
        TABLES.mkdir(exist_ok=True)
        export_trials([*before, *kept.trials], path)
        path.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return len(kept.trials)


def main() -> None:
    """All grids, or those named."""
    trials = 0
    for name in sys.argv[1:] or choose(list(GRIDS), list(GRIDS), ["counts"]):
        rate = GRIDS[name].rate
        if rate and "SIZEWRIGHT_ADDRESS" not in os.environ:
            with Bed(NODES, rate, DELAY) as bed:
                done = bed.run([sys.executable, "-m", "benchmarks.grids", name], timeout_s=1800)
            print(done.stdout, done.stderr, sep="\n")
            trials += int(json.loads(done.stdout.splitlines()[-1])["trials"])
        else:
            trials += measure_grid(name)
    finish("grids", {"trials": float(trials)}, {}, keep=False)  # the tables are what is kept


if __name__ == "__main__":
    main()
