"""DLRover's own optimizer against ours, on recorded trials: `make bench NAME=dlrover`.

Both size the same job from the same start, DLRover's plan for a new job. DLRover (`PSLocalOptimizer` of `dlrover` from
PyPI, in an environment of its own) is fed what our grids recorded: cores used, memory and speed. Its master asks for a
plan every 300 s: first for the number of workers, then for the number of PS, then again and again, where PS change at
most once an hour. A plan is carried out at the allocation of the grid that is nearest to it. Ours measures eight
trials first, then runs the job at its pick. The answers of both come from the grid's trials, one of an allocation's
drawn at random; the time and the cost of the job come from the denoised grid, with every stop counted. The regret is
the time (or the cost) of the whole job over that of the best allocation from the start, minus 1.

Our grids have cores of a tenth of production's: they are multiplied by ten, as DLRover plans no less than one. Changes
of workers alone cost DLRover nothing; a change of PS costs it 30 s, and so does ours from the trials to the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks._baselines import default_planner
from benchmarks._measured import SEEDS, on_all_cores, own_tables
from benchmarks._replays import replay_planner
from benchmarks._report import choose, finish
from sizewright.formatting import MIB
from sizewright.models.table import as_columns
from sizewright.profiler.evaluation import draw
from sizewright.profiler.planner.candidates import CandidateSet
from sizewright.profiler.planner.measured_table import MeasuredTable
from sizewright.spec import Objective

Floats = NDArray[np.float64]

VERSION = "0.6.1"
ENVIRONMENT = Path(__file__).parents[1] / ".venv" / "dlrover"
LINKED = ("network", "faster-network")
CORES = 10.0
"""Cores of production for a core of the grids."""
HOURS = 2.0
"""Length of the job at the best throughput."""
INTERVAL_S, PS_INTERVAL_S, REPORTS = 300.0, 3600.0, 5
STOP_S, TRIALS, TRIAL_S = 30.0, 8, 8.0
OBJECTIVES: dict[str, Objective] = {"time": "time", "cost": "cost"}
EMPTY: dict[str, Any] = {"groups": {}, "nodes": {}}
TARGETS = {
    "regret_time": "≤ 0.2, and at most half of dlrover_regret_time",
    "regret_cost": "≤ 0.2, and at most half of dlrover_regret_cost",
}


class Spent(NamedTuple):
    """Seconds and cost of a whole job."""

    seconds: float
    cost: float


class Run:
    """A job that trains at the denoised throughput of a grid, and pays the hourly price of its allocation."""

    def __init__(self, table: MeasuredTable) -> None:
        self.throughput = table.smoothed.throughput
        self.price = CandidateSet(table.allocations).hourly_price
        self.samples = HOURS * 3600 * float(self.throughput.max())
        self.seconds = self.cost = 0.0

    def train(self, row: int, seconds: float) -> None:
        """Train at an allocation for some seconds, or until all samples are trained."""
        seconds = min(seconds, self.samples / max(self.throughput[row], 1e-9))
        self.samples -= seconds * self.throughput[row]
        self._pay(row, seconds)

    def stop(self, row: int, seconds: float) -> None:
        """Hold an allocation without training."""
        self._pay(row, seconds)

    def finish(self, row: int) -> Spent:
        """Train what is left, and return what the job took."""
        self.train(row, np.inf)
        return Spent(self.seconds, self.cost)

    def _pay(self, row: int, seconds: float) -> None:
        self.seconds += seconds
        self.cost += seconds / 3600 * float(self.price[row])


class Dlrover:
    """DLRover's optimizer in a process of its own environment."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, cores: float) -> None:
        """Begin a job that may use this many cores."""
        self._send({"limits": {"cpu": cores, "memory": 1e15}})

    def report(self, stats: dict[str, Any]) -> None:
        """Report one observation of the job."""
        self._send({"stats": stats})

    def plan(self, stage: str) -> dict[str, Any]:
        """Return the plan for a stage of the job. Raises RuntimeError if the optimizer has ended."""
        self._send({"stage": f"job_stage_{stage}"})
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                plan: dict[str, Any] = json.loads(line)
                return plan
        raise RuntimeError("DLRover's optimizer ended.")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


class Master:
    """The order in which DLRover's master asks for plans (`PSJobResourceOptimizer.get_job_resource_plan`)."""

    def __init__(self, optimizer: Dlrover) -> None:
        self._optimizer = optimizer
        self._stage = "worker_initial"
        self._ps_planned_s = -np.inf
        self._sampled = False

    def plan(self, now_s: float) -> dict[str, Any]:
        """Return the next plan, empty where nothing is to be changed."""
        stage = self._stage
        if stage == "worker_initial":
            self._stage = "ps_initial"
            return self._optimizer.plan(stage)
        self._stage = "ps_running"
        planned = EMPTY
        if now_s - self._ps_planned_s > PS_INTERVAL_S:
            planned = self._optimizer.plan(stage)
            self._ps_planned_s = self._ps_planned_s if planned == EMPTY else now_s
        if stage == "ps_running" and planned == EMPTY:
            planned = self._optimizer.plan("worker_running" if self._sampled else "worker_initial")
            self._sampled = True
        return planned


@contextmanager
def dlrover() -> Iterator[Dlrover]:
    """Start DLRover's optimizer, and end it."""
    server = Path(__file__).with_name("_dlrover_server.py")
    # Isolated, since a folder of this project has a module of the name `dlrover`, too.
    command = [str(ENVIRONMENT / "bin" / "python"), "-I", str(server)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield Dlrover(process)
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(30)


def install() -> None:
    """Make the environment of DLRover, if it is not there."""
    python = ENVIRONMENT / "bin" / "python"
    if (ENVIRONMENT / ".ready").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    packages = [f"dlrover=={VERSION}", "grpcio", "protobuf<6", "kubernetes", "numpy"]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    (ENVIRONMENT / ".ready").touch()


class Grid:
    """A table whose allocations DLRover's plans are looked up in."""

    def __init__(self, table: MeasuredTable) -> None:
        self.table = table
        columns = as_columns(table.allocations, ("workers", "ps", "worker_cpu", "ps_cpu", "batch_size"))
        cores = {name: np.where(np.isfinite(columns[name]), columns[name], 1.0) for name in ("worker_cpu", "ps_cpu")}
        self.workers, self.ps, self.batch = columns["workers"], columns["ps"], columns["batch_size"]
        self.worker_cpu, self.ps_cpu = cores["worker_cpu"] * CORES, cores["ps_cpu"] * CORES
        self.works = np.array([len(m) > 0 for m in table.measurements])
        self.cores = float((self.workers * self.worker_cpu + self.ps * self.ps_cpu).max())

    def nearest(self, plan: dict[str, float]) -> int:
        """Return the working allocation that is nearest to the counts and cores of a plan, by their logarithms."""
        wanted = [(plan["workers"], self.workers), (plan["ps"], self.ps)]
        wanted += [(plan["worker_cpu"], self.worker_cpu), (plan["ps_cpu"], self.ps_cpu)]
        distance = sum(np.log(column / max(value, 1e-9)) ** 2 for value, column in wanted)
        return int(np.argmin(np.where(self.works, distance, np.inf)))

    def at(self, row: int) -> dict[str, float]:
        """Return the counts and cores of an allocation."""
        columns = {"workers": self.workers, "ps": self.ps, "worker_cpu": self.worker_cpu, "ps_cpu": self.ps_cpu}
        return {name: float(column[row]) for name, column in columns.items()}

    def stats(self, row: int, at_s: float, rng: np.random.Generator) -> dict[str, Any]:
        """Return what DLRover's agents would report of one of the trials at an allocation."""
        trial, here = draw(self.table, row, rng), self.at(row)
        stats: dict[str, Any] = {}
        for role, count in (("ps", "ps"), ("worker", "workers")):
            memory = float(trial.get(f"{role}_memory_bytes") or 0.0) / MIB
            stats[role] = {
                "count": int(here[count]),
                "cpu": here[f"{role}_cpu"],
                "used_cpu": float(trial[f"{role}_cpu_used"]) * CORES,
                "memory": 2 * memory,
                "used_memory": memory,
            }
        speed = trial["throughput"] / float(self.batch[row])
        return stats | {"speed": speed, "at_s": at_s, "step": int(at_s * speed)}


def run_dlrover(table: MeasuredTable, seed: int) -> tuple[Spent, int]:
    """Return what a job takes that DLRover tunes, and the allocation at which it began."""
    grid, run, rng = Grid(table), Run(table), np.random.default_rng(seed)
    with dlrover() as optimizer:
        optimizer.begin(grid.cores)
        groups = optimizer.plan("create")["groups"]
        plan = {"workers": groups["worker"]["count"], "ps": groups["ps"]["count"]}
        plan |= {"worker_cpu": groups["worker"]["cpu"], "ps_cpu": groups["ps"]["cpu"]}
        row = start = grid.nearest(plan)
        master = Master(optimizer)
        while run.samples > 0:
            for report in range(REPORTS):
                optimizer.report(grid.stats(row, run.seconds + report * INTERVAL_S / REPORTS, rng))
            run.train(row, INTERVAL_S)
            before, row = row, grid.nearest(_changed(grid.at(row), master.plan(run.seconds)))
            if (grid.ps[before], grid.ps_cpu[before]) != (grid.ps[row], grid.ps_cpu[row]):
                run.stop(row, STOP_S)
    return Spent(run.seconds, run.cost), start


def _changed(here: dict[str, float], planned: dict[str, Any]) -> dict[str, float]:
    """Return the counts and cores that a plan asks for; what it leaves open stays."""
    wanted = dict(here)
    for kind, count in (("worker", "workers"), ("ps", "ps")):
        if group := planned["groups"].get(kind):
            wanted |= {count: max(1, group["count"]), f"{kind}_cpu": group["cpu"]}
    nodes = [node["cpu"] for name, node in planned["nodes"].items() if name.startswith("ps-") and node["cpu"]]
    if nodes:  # our PS are alike: the mean of theirs
        others = here["ps"] - len(nodes)
        wanted["ps_cpu"] = (sum(nodes) + others * here["ps_cpu"]) / here["ps"]
    return wanted


def run_ours(table: MeasuredTable, start: int, objective: Objective, seed: int) -> Spent:
    """Return what a job takes that our planner sizes with trials, from the same start."""
    run = Run(table)
    done = replay_planner(default_planner, table, objective, TRIALS, seed)
    candidates = CandidateSet(table.allocations)
    for _, trial in done.trials.iterrows():
        row = candidates.index_of({str(name): cell for name, cell in trial.items()})
        run.stop(start if row is None else row, TRIAL_S)
    run.stop(done.pick, STOP_S)
    return run.finish(done.pick)


def compare(table: MeasuredTable, seed: int) -> list[dict[str, Any]]:
    """Return the regrets of both on one table, by time and by cost."""
    run = Run(table)
    works = run.throughput > 0
    best = {
        "time": run.samples / float(run.throughput.max()),
        "cost": run.samples / 3600 * float((run.price[works] / run.throughput[works]).min()),
    }
    theirs, start = run_dlrover(table, seed)
    rows = []
    for name, objective in OBJECTIVES.items():
        ours = run_ours(table, start, objective, seed)
        for who, spent in (("ours", ours), ("dlrover", theirs)):
            took = spent.seconds if name == "time" else spent.cost
            rows.append({"table": table.name, "who": who, "by": name, "regret": took / best[name] - 1})
    return rows


def main() -> None:
    install()
    tables = [table for table in own_tables() if table.name not in LINKED]
    tables = tables[: choose(len(tables), len(tables), 1)]
    work = [(table, seed) for table in tables for seed in SEEDS]
    rows = pd.DataFrame([row for rows in on_all_cores(compare, *zip(*work, strict=True)) for row in rows])
    shown = rows.pivot_table(index="table", columns=["by", "who"], values="regret")
    print(shown.round(3).to_string())
    mean = rows.groupby(["who", "by"]).regret.mean()
    figures = {f"regret_{by}": float(mean["ours", by]) for by in OBJECTIVES}
    figures |= {f"dlrover_regret_{by}": float(mean["dlrover", by]) for by in OBJECTIVES}
    details = {
        "dlrover": VERSION,
        "tables": {
            f"{row.table} {row.who} {row.by}": round(float(row.regret), 4)
            for row in rows.groupby(["table", "who", "by"], as_index=False).regret.mean().itertuples()
        },
    }
    finish("dlrover", figures, TARGETS, details)


if __name__ == "__main__":
    main()
