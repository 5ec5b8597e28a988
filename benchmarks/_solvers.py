"""General solvers for the same problems, each on one thread until its gap is 1e-3 or its time limit is reached."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from typing import NamedTuple

import highspy
import numpy as np

from sizewright.cluster.allocators._highs import _program
from sizewright.cluster.problem.problem import Problem

GAP = 1e-3


class Solved(NamedTuple):
    """The result of a solver: value of its choice, seconds of solving alone, and whether it proved its gap in time."""

    value: float
    seconds: float
    proved: bool


def highs(problem: Problem, limit_s: float) -> Solved:
    """Solve with HiGHS, without a starting point and with the full table."""
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in {"output_flag": False, "threads": 1, "mip_rel_gap": GAP, "time_limit": limit_s}.items():
        model.setOptionValue(option, value)
    model.passModel(_program(problem, *np.nonzero(problem.offered)))
    start = time.perf_counter()
    model.run()
    seconds, info = time.perf_counter() - start, model.getInfo()
    feasible = np.isfinite(info.objective_function_value) and info.primal_solution_status == 2
    proved = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return Solved(-info.objective_function_value if feasible else 0.0, seconds, proved)


def cp_sat(problem: Problem, limit_s: float) -> Solved:
    """Solve with CP-SAT in a separate process, because it brings another HiGHS, which conflicts with ours."""
    file = io.BytesIO()
    np.savez(
        file, needs=problem.needs, utilities=problem.utilities, capacity=problem.capacity, limit_s=limit_s, gap=GAP
    )
    words = [sys.executable, "-m", "benchmarks._cp_sat"]
    stdout = subprocess.run(words, input=file.getvalue(), capture_output=True, check=True).stdout
    solution = json.loads(stdout.splitlines()[-1])
    value = problem.total(np.array(solution["choice"])) if solution["choice"] else 0.0
    return Solved(value, solution["seconds"], solution["proved"])
