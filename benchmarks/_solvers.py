"""The same problems handed to general solvers, each on one thread until its own gap is 1e-3 or its time is out."""

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
    """What a solver found: worth of its choice, seconds of solving alone, whether it proved its gap in time."""

    value: float
    seconds: float
    proved: bool


def highs(problem: Problem, limit_s: float) -> Solved:
    """HiGHS, without a start and with the whole table."""
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in {"output_flag": False, "threads": 1, "mip_rel_gap": GAP, "time_limit": limit_s}.items():
        model.setOptionValue(option, value)
    model.passModel(_program(problem, *np.nonzero(problem.offered)))
    began = time.perf_counter()
    model.run()
    seconds, info = time.perf_counter() - began, model.getInfo()
    found = np.isfinite(info.objective_function_value) and info.primal_solution_status == 2
    proved = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return Solved(-info.objective_function_value if found else 0.0, seconds, proved)


def cp_sat(problem: Problem, limit_s: float) -> Solved:
    """CP-SAT, in a process of its own: it brings another HiGHS, and two in one process clash."""
    file = io.BytesIO()
    np.savez(file, needs=problem.needs, worth=problem.worth, capacity=problem.capacity, limit_s=limit_s, gap=GAP)
    words = [sys.executable, "-m", "benchmarks._cp_sat"]
    told = subprocess.run(words, input=file.getvalue(), capture_output=True, check=True).stdout
    found = json.loads(told.splitlines()[-1])
    value = problem.total(np.array(found["choice"])) if found["choice"] else 0.0
    return Solved(value, found["seconds"], found["proved"])
