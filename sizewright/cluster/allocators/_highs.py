"""The allocation problem as a mixed-integer programme for HiGHS."""

from __future__ import annotations

from dataclasses import replace

import highspy
import numpy as np
from scipy.sparse import csc_array

from sizewright.cluster.problem.problem import ROUNDING, Bools, Ints, Problem

_OPTIONS: dict[str, bool | int | float] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    "mip_allow_restart": False,
    "mip_abs_gap": 0.0,
}


def solve_with_highs(problem: Problem, is_open: Bools, start: Ints, gap: float, limit_s: float) -> tuple[Ints, float]:
    """Return the best choice of open columns (J, K) that HiGHS finds, and a bound on the utility of all such choices.

    The search begins at `start` (J,), whose columns count as open, and ends at the relative `gap` or after `limit_s`.
    """
    J = len(start)
    is_open = is_open.copy()
    is_open[np.arange(J), start] = True
    jobs, columns = np.nonzero(is_open)
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in _OPTIONS.items():
        model.setOptionValue(option, value)
    model.setOptionValue("time_limit", max(limit_s, 0.0))
    model.setOptionValue("mip_rel_gap", gap)
    model.passModel(_program(problem, jobs, columns))
    initial = highspy.HighsSolution()
    initial.col_value = list((start[jobs] == columns).astype(float))
    model.setSolution(initial)
    model.run()
    solution = np.array(model.getSolution().col_value)
    choice = start.copy()
    if len(solution) == len(jobs):
        picked = solution > 0.5
        choice[jobs[picked]] = columns[picked]
    bound = -model.getInfo().mip_dual_bound
    return choice, bound if np.isfinite(bound) else np.inf


def smallest_choice(problem: Problem, limit_s: float) -> Ints:
    """Return a choice (J,) of small dominant shares: something for each job that must run, nothing for the others.

    If none is found within `limit_s`, return the problem's floor, which may exceed the capacity.
    """
    may_wait = problem.offered[:, :1] & (np.arange(problem.shape[1]) > 0)
    small = replace(problem, values=-problem.share, change_price=np.zeros(len(problem.current)))
    choice, _ = solve_with_highs(small, problem.offered & ~may_wait, problem.floor, 0.1, limit_s)
    return choice


def _program(problem: Problem, jobs: Ints, columns: Ints) -> highspy.HighsLp:
    """Return a programme with one variable per candidate, one row per job (exactly one), and one per resource.

    Resources are in shares of their capacities.
    """
    J, _, R = problem.shape
    N = len(jobs)
    capacity = np.where(problem.capacity > 0, problem.capacity, 1.0)
    shares = problem.needs[jobs, columns] / capacity
    rows = np.concatenate([jobs, np.repeat(J + np.arange(R), N)])
    entries = np.concatenate([np.ones(N), shares.T.ravel()])
    matrix = csc_array((entries, (rows, np.tile(np.arange(N), R + 1))), shape=(J + R, N))
    upper = np.ones(J + R)
    upper[J:] = np.where(problem.capacity > 0, 1.0 + ROUNDING / 10, ROUNDING / 10)
    program = highspy.HighsLp()
    program.num_col_ = N
    program.num_row_ = J + R
    program.col_cost_ = -problem.utilities[jobs, columns]
    program.col_lower_ = np.zeros(N)
    program.col_upper_ = np.ones(N)
    program.row_lower_ = np.concatenate([np.ones(J), np.full(R, -np.inf)])
    program.row_upper_ = upper
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = matrix.indptr
    program.a_matrix_.index_ = matrix.indices
    program.a_matrix_.value_ = matrix.data
    program.integrality_ = [highspy.HighsVarType.kInteger] * N
    return program
