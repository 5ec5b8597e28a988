"""Simulations of 5,000, 15,000 and 50,000 jobs in 15 days under every policy, each in a separate process.

Jobs and arrivals are drawn from Philly. Half of the jobs are elastic, with invented power laws of exponents .6 to .95.
The capacity gives a load of .9, and decisions are 300 s apart. `wall_50k_s`, `memory_50k_gib` and `growth_exponent` are
those of the worst policy; the exponent is that of the seconds over the number of jobs (n log n has 1.10 over this
range). With a policy and a number as arguments, the script runs this simulation only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._philly import philly
from benchmarks._report import choose, finish
from sizewright.cluster.allocators.registry import ALLOCATORS
from sizewright.cluster.simulator.curves import Elasticity
from sizewright.cluster.simulator.engine import Settings
from sizewright.cluster.simulator.scenario import Scenario, simulate_scenario

SIZES = choose((5_000, 15_000, 50_000), (1_000, 3_000, 10_000), (50, 100))
POLICIES = choose(tuple(ALLOCATORS), ("default", "fifo", "slope"), ("default",))
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
TARGETS = {"wall_50k_s": "<= 60", "memory_50k_gib": "<= 2", "growth_exponent": "<= 1.10"}


def main() -> None:
    trace, rows = philly(), list[dict[str, Any]]()
    for size in SIZES:
        print(f"{size:,} jobs: a rate of {size / len(trace):.2f} × the trace's {len(trace):,} in 15 days", flush=True)
        for policy in POLICIES:
            row = _in_own_process(policy, size)
            rows.append(row)
            times = f"{row['decisions']:6.0f} decisions, 99 % in {row['decision_p99_s'] * 1e3:6.1f} ms"
            print(f"  {policy:<18}{row['wall_s']:8.1f} s  {row['memory_gib']:5.2f} GiB  {times}", flush=True)
    largest = [row for row in rows if row["jobs"] == SIZES[-1]]
    growth = {policy: _growth([row for row in rows if row["policy"] == policy]) for policy in POLICIES}
    figures = {
        "wall_50k_s": max(row["wall_s"] for row in largest),
        "memory_50k_gib": max(row["memory_gib"] for row in largest),
        "growth_exponent": max(growth.values()),
        "default_wall_50k_s": next(row["wall_s"] for row in largest if row["policy"] == "default"),
    }
    finish("simulator", figures, TARGETS, {"runs": rows, "growth": growth, "rate_factor": SIZES[-1] / len(trace)})


def _growth(rows: list[dict[str, Any]]) -> float:
    """Return the slope of log seconds over log jobs."""
    slope, _ = np.polyfit(np.log([row["jobs"] for row in rows]), np.log([row["wall_s"] for row in rows]), 1)
    return float(slope)


def _in_own_process(policy: str, size: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.simulator", policy, str(size)]
    stdout = subprocess.run(words, capture_output=True, check=True, text=True, env=os.environ | _ONE_THREAD).stdout
    row: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return row


def one(policy: str, size: int) -> None:
    """Run one simulation in this process, on one core."""
    scenario = Scenario(policy, 0.9, jobs=size, elasticity=Elasticity(share=0.5), settings=Settings(every_s=300.0))
    trace = philly()
    began = time.perf_counter()
    figures = simulate_scenario(trace, scenario).result.figures()
    wall_s = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()  # `ru_maxrss` would include the peak of the parent process
    memory_gib = int(status.split("VmHWM:")[1].split()[0]) / 2**20
    assert figures["unfinished"] == 0
    selected = {name: figures[name] for name in ("decisions", "decision_p99_s", "jct_s", "queueing_s")}
    print(json.dumps({"policy": policy, "jobs": size, "wall_s": wall_s, "memory_gib": memory_gib, **selected}))


if __name__ == "__main__":
    one(sys.argv[1], int(sys.argv[2])) if len(sys.argv) == 3 else main()
