"""The allocation problem handed to HiGHS."""

from __future__ import annotations

from dataclasses import replace

import highspy
import numpy as np
from scipy.sparse import csc_array

from sizewright.cluster.problem import ROUNDING, Bools, Ints, Problem


def improved(problem: Problem, open_: Bools, start: Ints, gap: float, limit_s: float) -> tuple[Ints, float]:
    """A choice of open columns (J, K), `start` or better, and what no choice of open columns exceeds."""
    J = len(start)
    open_ = open_.copy()
    open_[np.arange(J), start] = True
    jobs, columns = np.nonzero(open_)
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in _OPTIONS.items():
        model.setOptionValue(option, value)
    model.setOptionValue("time_limit", max(limit_s, 0.0))
    model.setOptionValue("mip_rel_gap", gap)
    model.passModel(_program(problem, jobs, columns))
    known = highspy.HighsSolution()
    known.col_value = list((start[jobs] == columns).astype(float))
    model.setSolution(known)
    model.run()
    info, taken = model.getInfo(), np.array(model.getSolution().col_value)
    choice = start.copy()
    if len(taken) == len(jobs):
        picked = taken > 0.5
        choice[jobs[picked]] = columns[picked]
    bound = -info.mip_dual_bound
    return choice, bound if np.isfinite(bound) else np.inf


def smallest(problem: Problem, limit_s: float) -> Ints:
    """The choice of small shares with something for each job that may not be put off and nothing for the others; the
    problem's floor, which may exceed the capacity, where none is found."""
    others = problem.offered[:, :1] & (np.arange(problem.shape[1]) > 0)
    small = replace(problem, values=-problem.share, change_price=np.zeros(len(problem.current)))
    return improved(small, problem.offered & ~others, problem.floor, 0.1, limit_s)[0]


_OPTIONS: dict[str, bool | int | float] = {
    "output_flag": False, "threads": 1, "random_seed": 0, "mip_allow_restart": False, "mip_abs_gap": 0.0,
}  # fmt: skip


def _program(problem: Problem, jobs: Ints, columns: Ints) -> highspy.HighsLp:
    """One column a candidate; a row for each job (exactly one), and for each resource in shares of its capacity."""
    J, _, R = problem.shape
    N, worth = len(jobs), problem.worth[jobs, columns]
    capacity = np.where(problem.capacity > 0, problem.capacity, 1.0)
    shares = problem.needs[jobs, columns] / capacity
    rows = np.concatenate([jobs, np.repeat(J + np.arange(R), N)])
    entries = np.concatenate([np.ones(N), shares.T.ravel()])
    matrix = csc_array((entries, (rows, np.tile(np.arange(N), R + 1))), shape=(J + R, N))
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = N, J + R
    program.col_cost_ = -worth
    program.col_lower_, program.col_upper_ = np.zeros(N), np.ones(N)
    least, most = np.concatenate([np.ones(J), np.full(R, -np.inf)]), np.ones(J + R)
    most[J:] = np.where(problem.capacity > 0, 1.0 + ROUNDING / 10, ROUNDING / 10)
    program.row_lower_, program.row_upper_ = least, most
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_, program.a_matrix_.index_ = matrix.indptr, matrix.indices
    program.a_matrix_.value_ = matrix.data
    program.integrality_ = [highspy.HighsVarType.kInteger] * N
    return program
