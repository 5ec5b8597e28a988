"""Measure full grids of allocations: the tables that models and planners are evaluated on.

`python -m benchmarks.grids NAME...` writes `benchmarks/tables/NAME.csv` (the trial table) and `NAME.json` (how it was
measured). Allocations come in random order, so that drift of the host is noise and not a trend. Some are measured again
at other times, which shows the size of this noise. With MORE=1 the trials are added to the existing ones. Grids behind
links are measured on the test bed (needs root).
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
MAX_CORES = 1.6
PS_MEMORY_BYTES = 3 << 29
REPEATED = 8
NODES, DELAY = 3, "1ms"
_FULL = Timing(min_s=2.5, max_s=5.0, target_se=0.015)
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
    """The total batch size, divided over the workers, if it is fixed."""
    rate: str | None = None
    """Rate of the links between the machines; None on one host."""

    def job(self, name: str) -> Job:
        """Return the job for the profiler."""
        model = {"optimizer": "adagrad", **self.model}
        return Job.model_validate({"name": name, "model": model, "training": self.training})

    def allocations(self, job: Job) -> list[Allocation]:
        """Return all allocations that fit this host, with enough memory."""
        memory = MemoryModel(job)
        axes = itertools.product(self.workers, self.ps, self.worker_cpu, self.ps_cpu)
        batch = job.training.batch_size
        fitting = [(w, p, wc, pc) for w, p, wc, pc in axes if w * wc + p * pc <= MAX_CORES + 1e-9]
        sized = [Allocation.of(*axis, self.total_batch // axis[0] if self.total_batch else batch) for axis in fitting]
        return [_with_ample_memory(with_memory(allocation, memory)) for allocation in sized]


def _with_ample_memory(allocation: Allocation) -> Allocation:
    """Raise the memory of PS, so that one that held more rows before does not run out: these grids are about speed."""
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
    # The shape on which efficiency is measured: both workers and PS are busy.
    "mixed": Grid(
        {"family": "dlrm", "tables": _tables(100_000, 16), "bottom_mlp": [512, 256], "top_mlp": [512, 256]},
        {"batch_size": 512},
        (1, 2, 3, 4), (1, 2), (0.15, 0.25, 0.35), (0.1, 0.2, 0.3),
    ),
    # Synchronous with a fixed total batch: more workers may be slower.
    "fixed-batch": Grid(
        {"family": "dcn", "tables": _tables(50_000, 16), "cross_layers": 3, "top_mlp": [256, 128]},
        {"batch_size": 1024, "sync": "sync"},
        (1, 2, 3, 4, 6), (1, 2), (0.15, 0.25, 0.35), (0.1, 0.2, 0.3), total_batch=1024,
    ),
    # Wide rows and little to compute: PS are the bottleneck.
    "wide-rows": Grid(
        {"family": "wide_deep", "tables": _tables(50_000, 64), "top_mlp": [64]},
        {"batch_size": 256},
        (1, 2, 3, 5), (1, 2, 3), (0.15, 0.25), (0.1, 0.15, 0.25),
    ),
    # Machines connected by slow and by faster links, and the same job on one host.
    "network": _LINKED._replace(rate="80mbit"),
    "faster-network": _LINKED._replace(rate="200mbit"),
    "loopback": _LINKED,
    # Many small replicas that differ only in number.
    "counts": Grid(
        {"family": "dlrm", "tables": _tables(50_000, 32), "bottom_mlp": [128], "top_mlp": [128]},
        {"batch_size": 256},
        (1, 2, 3, 4, 5, 6, 8, 10), (1, 2, 3, 4, 5), (0.1,), (0.1,),
    ),
}  # fmt: skip


class TrialList:
    """A list of trials with the `add` method of a store."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def add(self, trial: Trial) -> None:
        """Add a trial, without the name of this host."""
        self.trials.append(trial.model_copy(update={"host": None, "series": None}))


def measure_grid(name: str) -> int:
    """Measure a grid in one session, here or on the cluster that the environment names; return the number of trials."""
    grid, rng = GRIDS[name], random.Random(0)
    job = grid.job(name)
    allocations = grid.allocations(job)
    points = [TrialPoint(allocation) for allocation in allocations]
    points += rng.sample(points, REPEATED)
    rng.shuffle(points)
    points = points[: choose(len(points), 6, 1)]
    measured, began = TrialList(), time.monotonic()
    with Session(job, address=os.environ.get("SIZEWRIGHT_ADDRESS")) as session:
        load_ahead(session, points)
        for step in run_series(session, QueuePlanner(points), measured, name, timing=TIMING):
            outcome = f"{step.trial.throughput:,.0f} samples/s" if step.trial.throughput else step.trial.message
            print(f"{len(measured.trials)}/{len(points)} {step.point.allocation.describe()}: {outcome}", flush=True)
    path = TABLES / f"{name}.csv"
    before = import_trials(path) if MORE else []
    passes = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["passes"] if MORE else 0
    about = {
        "measured_at": now().isoformat(timespec="minutes"),
        "seconds": round(time.monotonic() - began),
        "allocations": len(allocations),
        "passes": passes + 1,
        "trials": len(before) + len(measured.trials),
        "not_well": sum(trial.status != "ok" for trial in [*before, *measured.trials]),
        "order": "random in each pass; eight allocations once more",
        "held": "cores by CFS quota (period 20 ms), memory by control groups",
        "links": f"{NODES} machines, {grid.rate} and {DELAY} each" if grid.rate else "loopback",
        "host": host(),
        "job": job.model_dump(mode="json"),
    }
    if not QUICK:
        about["commit"] = commit()
        TABLES.mkdir(exist_ok=True)
        export_trials([*before, *measured.trials], path)
        path.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return len(measured.trials)


def main() -> None:
    """Measure all grids, or those named on the command line."""
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
    finish("grids", {"trials": float(trials)}, {}, keep=False)  # the tables are kept instead


if __name__ == "__main__":
    main()
