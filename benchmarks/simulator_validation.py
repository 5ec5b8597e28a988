"""The simulator against a real cluster: Muri's experiment of 400 jobs on 8 × 8 V100 (Zhao et al., SIGCOMM 2022).

Its authors published the trace, and for each policy when each job started and ended. The policies are replayed here,
with durations known exactly (`error=0`), and the mean completion time, its 99th percentile and the makespan are
compared with what happened. The work of a job is taken in three ways:

- own: the time that the job ran under the same policy. What remains is the rules of the scheduler.
- measured: the time that the job ran in the authors' run of SRTF (`real_executed_time`), starts included, as the work
  for all three policies. Tiresias starts jobs more often than SRTF, which this work does not have.
- trace: iterations × iteration time, as the trace states them, and a pause at each start.

The settings are those of the experiment, as the paper and the public code state them; none was fitted to the outcome:

- decisions at multiples of 360 s (`--schedule_interval 360` in `cluster_exp/run.sh`), also without an arrival or end;
- SRTF is our `sjf` and SRSF our `srsf`: the remaining time, or the remaining time × GPUs; jobs that do not fit are
  skipped (`shortest_first_sim_jobs` in `cluster_exp/run.py`);
- Tiresias has three queues, which end at 3,250 and 7,200 GPU-seconds, and no promotion (`queue_limit` in
  `cluster_exp/jobs.py`; `solve_starvation=0`), the default of our `tiresias`;
- jobs have 1 to 32 GPUs, powers of two, so that they always pack on servers of 8: the capacity is a sum of 64 GPUs;
- with work from the trace, a start takes 10 s, what the authors' simulator takes for a model without a profile
  (`tmp_oh` in `simulator/run_sim.py`), and every job starts anew at a decision after a job came or ended, since their
  controller stops and starts all jobs then (`cluster_exp/run.py`). The times that jobs ran have these pauses already.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._report import choose, finish
from sizewright.cluster.allocators import get_allocator
from sizewright.cluster.problem.problem import Floats, Ints
from sizewright.cluster.simulator.capacity import Capacity
from sizewright.cluster.simulator.curves import Elasticity, workload_of
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.state import SimulationState
from sizewright.datasets.traces import Trace

FOLDER = Path(os.environ.get("SIZEWRIGHT_SHARED", "shared")) / "data" / "muri"
GPUS = 64.0
CLOCK_S = 360.0
START_S = 10.0
POLICIES = {"SRTF": "sjf", "SRSF": "srsf", "tiresias": "tiresias"}
"""Our policy by the name of the authors' results."""
JOBS = choose(400, 400, 60)
FIGURES = ("mean", "p99", "makespan")
KINDS = ("own", "measured", "trace")
TARGETS = {
    "mean_error_measured": "<= 0.02; Tiresias 0.05",
    "p99_error_measured": "<= 0.03",
    "makespan_error_measured": "<= 0.01",
    "mean_error_trace": "<= 0.08; Tiresias 0.09",
    "p99_error_trace": "<= 0.05",
    "makespan_error_trace": "<= 0.05",
}


@dataclass(frozen=True)
class Outcome:
    """Completion times (N,) and ends (N,) of the jobs, in seconds from the first arrival on."""

    jct_s: Floats
    ends_s: Floats

    def figures(self) -> dict[str, float]:
        """Return the mean and the 99th percentile of the completion times, and the makespan."""
        return {
            "mean": float(self.jct_s.mean()),
            "p99": float(np.percentile(self.jct_s, 99)),
            "makespan": float(self.ends_s.max()),
        }


class RestartingCapacity(Capacity):
    """A cluster that stops and starts all its jobs at a decision after a job came or ended."""

    def __init__(self, capacity: Floats) -> None:
        super().__init__(capacity)
        self.last = (0, 0)

    def place(self, state: SimulationState, jobs: Ints, columns: Ints, utilities: Floats | None = None) -> Ints:
        """See `Capacity`. Jobs that start now pause as they do anywhere."""
        now = (state.came, len(jobs))
        if now != self.last:
            stays = jobs[(columns == state.column[jobs]) & (columns > 0)]
            state.stall(stays, state.workload.restart_s[stays])
        self.last = now
        return columns


def main() -> None:
    if not FOLDER.is_dir():
        sys.exit(f"No trace in {FOLDER}: set SIZEWRIGHT_SHARED to the folder that holds data/muri.")
    table = pd.read_csv(FOLDER / "cluster_trace.csv").head(JOBS)
    happened = {name: _results(name).loc[table["job_id"]] for name in POLICIES}
    stated_s = (table["iterations"] * table["iteration_time"] / 1000).to_numpy(float)
    ran_s = {name: results["real_executed_time"].to_numpy(float) for name, results in happened.items()}
    errors: dict[str, dict[str, dict[str, float]]] = {kind: {} for kind in KINDS}
    for name in POLICIES:
        real = Outcome(*(happened[name][column].to_numpy(float) for column in ("JCT", "end_time"))).figures()
        work_s = {"own": ran_s[name], "measured": ran_s["SRTF"], "trace": stated_s}
        for kind in KINDS:
            replayed = _replay(table, work_s[kind], POLICIES[name], START_S if kind == "trace" else 0.0)
            simulated = replayed.figures()
            errors[kind][name] = {figure: simulated[figure] / real[figure] - 1 for figure in FIGURES}
            errors[kind][name] |= {f"{figure}_s": simulated[figure] for figure in FIGURES}
            errors[kind][name] |= {f"{figure}_real_s": real[figure] for figure in FIGURES}
            job_error_s = np.abs(replayed.jct_s - happened[name]["JCT"].to_numpy(float))
            errors[kind][name]["job"] = float(job_error_s.mean() / real["mean"])
            _print(kind, name, errors[kind][name])
    figures = {
        f"{figure}_error_{kind}": max(abs(row[figure]) for row in errors[kind].values())
        for kind in KINDS
        for figure in FIGURES
    }
    policies = {
        name: {f"{figure}_error_{kind}": errors[kind][name][figure] for kind in KINDS for figure in (*FIGURES, "job")}
        for name in POLICIES
    }
    finish("simulator_validation", figures, TARGETS, {"jobs": JOBS, "runs": errors}, tables=policies)


def _results(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / f"job_{name}.csv.gz").set_index("job_id")


def _replay(table: pd.DataFrame, work_s: Floats, policy: str, start_s: float) -> Outcome:
    """Return what becomes of the jobs if they take `work_s` (N,), and `start_s` more at each start."""
    names, arrived_s = tuple(table["job_id"].astype(str)), table["submit_time"].to_numpy(float) / 1000
    trace = Trace(names, arrived_s, work_s, {"gpu": table["num_gpu"].to_numpy(float)})
    exact = Elasticity(share=0.0, error=0.0, start_up_s=start_s, change_s=0.0, restart_s=start_s)
    supply = RestartingCapacity(np.array([GPUS]))
    settings = Settings(clock_s=CLOCK_S)
    result = Simulation(workload_of(trace, exact), supply, get_allocator(policy), settings).run()
    return Outcome(result.finished_s - result.arrived_s, result.finished_s)


def _print(kind: str, name: str, row: dict[str, float]) -> None:
    shown = ", ".join(f"{figure} {row[f'{figure}_s']:,.0f} s ({row[figure]:+.2%})" for figure in FIGURES)
    print(f"{kind:<9}{name:<9}{shown}; a job is off by {row['job']:.1%} of the mean", flush=True)


if __name__ == "__main__":
    main()
