"""Solve one allocation problem, read from stdin, with CP-SAT, and print a line of JSON.

CP-SAT works with integers: needs are millionths of the capacity, rounded up; values are millionths of the greatest
value, rounded down.
"""

from __future__ import annotations

import io
import json
import sys
import time

import numpy as np
from ortools.sat.python import cp_model

_SCALE = 1_000_000


def main() -> None:
    problem = np.load(io.BytesIO(sys.stdin.buffer.read()))
    needs = np.ceil(problem["needs"] / problem["capacity"] * _SCALE).astype(np.int64)
    values = np.floor(problem["utilities"] / problem["utilities"].max() * _SCALE).astype(np.int64)
    J, K, R = needs.shape
    model = cp_model.CpModel()
    taken = [[model.new_bool_var("") for _ in range(K)] for _ in range(J)]
    for row in taken:
        model.add_exactly_one(row)
    flat = [variable for row in taken for variable in row]
    for r in range(R):
        model.add(cp_model.LinearExpr.weighted_sum(flat, needs[:, :, r].ravel().tolist()) <= _SCALE)
    model.maximize(cp_model.LinearExpr.weighted_sum(flat, values.ravel().tolist()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.relative_gap_limit = float(problem["gap"])
    solver.parameters.max_time_in_seconds = float(problem["limit_s"])
    start = time.perf_counter()
    status = solver.solve(model)
    seconds = time.perf_counter() - start
    feasible = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    choice = [next(k for k in range(K) if solver.value(row[k])) for row in taken] if feasible else []
    print(json.dumps({"seconds": seconds, "choice": choice, "proved": status == cp_model.OPTIMAL}))


if __name__ == "__main__":
    main()
