"""Decisions of `default`: their duration and their proven gap, compared with HiGHS and CP-SAT at a gap of 1e-3.

Seconds are the median of five decisions of the slowest problem. Gaps are those of the worst problem, except
`small_multi_gap`: 90 % of the problems of 20, 50 and 100 jobs are within this gap after at most a second.
`speedup_vs_highs` is the lowest ratio over all problems of 1,000 jobs and more; a solver that reaches its time limit
counts with the limit. `worse_than_highs` is the most by which the choice of HiGHS is worth more than ours, there and on
small problems. Solvers are timed without building their models, ours with everything. The same figures are given for
CP-SAT.

With several kinds of GPUs, over random problems and all policies that take them: `kinds_idle` counts problems in which
a job waits beside what it could use, and `thrash` those in which a decision that is repeated with its own answer
changes a job (of `sia`, which may double jobs at each decision: changes it back). `kinds_of_bound` is the least share
of the bound that a policy reaches that maximises values, on Gavel's throughputs of three kinds.

`placed_100k_s` and `placed_gap` are those of the largest problem whose replicas are placed on servers, as many as there
are jobs. `rivals` are HiGHS, POP and `default`, which choose from the same candidates without placement.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._instances import KINDS, instance
from benchmarks._kinds import kinds_figures
from benchmarks._placed import compare_rivals, placed
from benchmarks._report import choose, finish
from benchmarks._solvers import cp_sat, highs
from sizewright.cluster.allocators.default import Default
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution

TARGETS = {
    "single_1000_s": "<= 0.05", "single_1000_gap": "<= 0.001", "multi_100k_s": "<= 2", "multi_100k_gap": "<= 0.001",
    "placed_100k_s": "<= 10", "placed_gap": "<= 0.03",
    "small_multi_gap": "<= 0.001", "speedup_vs_highs": ">= 20", "worse_than_highs": "<= 0.001",
    "kinds_idle": "0", "thrash": "0", "kinds_of_bound": ">= 0.9",
}  # fmt: skip
LIMIT_S = choose(60.0, 20.0, 0.5)
SMALL_S = choose(1.0, 1.0, 0.2)
PLACED_JOBS = choose((100, 1_000, 10_000, 100_000), (100, 1_000, 100_000), (100, 2_000))
PLACED_LIMIT_S = 5.0
"""The first answer and its placement are finished even after this limit."""
REPEATS = choose(5, 5, 1)


def main() -> None:
    single = [_timed(instance(1000, 32, 1, kind, seed)) for kind in KINDS for seed in range(choose(5, 1, 1))]
    multi = [_timed(instance(choose(100_000, 10_000, 1_000), 16, 3, kind, 0)) for kind in KINDS]
    small, small_excess = _small()
    compared = [_compare(*shape) for shape in _SHAPES[: choose(len(_SHAPES), 2, 1)]]
    of_kinds, by_policy = kinds_figures()
    rows = [placed(jobs, 0, PLACED_LIMIT_S) for jobs in PLACED_JOBS]
    rivals = {str(row["jobs"]): compare_rivals(int(row["jobs"]), row, LIMIT_S) for row in rows}
    within: dict[str, float] = {name: float(np.mean(np.array(gaps) <= 1e-3)) for name, gaps in small.items()}
    figures = {
        "single_1000_s": max(row["seconds"] for row in single),
        "single_1000_gap": max(row["gap"] for row in single),
        "multi_100k_s": max(row["seconds"] for row in multi),
        "multi_100k_gap": max(row["gap"] for row in multi),
        "placed_100k_s": rows[-1]["seconds"],
        "placed_gap": rows[-1]["gap"],
        "small_multi_within": float(np.mean([gap <= 1e-3 for gaps in small.values() for gap in gaps])),
        "small_multi_worst_kind_within": min(within.values()),
        "small_multi_gap": float(np.quantile([gap for gaps in small.values() for gap in gaps], 0.9, method="higher")),
        "speedup_vs_highs": min(row["highs_s"] / row["seconds"] for row in compared),
        "worse_than_highs": max(small_excess["worse_than_highs"], *(row["worse_than_highs"] for row in compared)),
        "speedup_vs_cp_sat": min(row["cp_sat_s"] / row["seconds"] for row in compared),
        "worse_than_cp_sat": max(small_excess["worse_than_cp_sat"], *(row["worse_than_cp_sat"] for row in compared)),
        **of_kinds,
    }
    for name, share in within.items():
        print(f"{name:<12}{share:6.0%} of {len(small[name])} problems within 0.1 % after {SMALL_S:g} s at most")
    details = {
        "single": single, "multi": multi, "small_within": within, "beside": compared,
        "placed": rows, "kinds": by_policy,
    }  # fmt: skip
    finish("allocators", figures, TARGETS, details, rivals=rivals)


_SHAPES = ((1000, 32, 1, "random"), (1000, 16, 3, "ps"), (1000, 16, 3, "random"), (1000, 32, 1, "ps"),
           (5000, 16, 3, "ps"), (5000, 16, 3, "random"))  # fmt: skip


def _decide(problem: Problem, limit_s: float) -> Solution:
    answer = Default()(problem, limit_s)
    assert problem.fits(answer.choice)
    assert answer.gap is not None
    return answer


def _timed(problem: Problem) -> dict[str, float]:
    answers = [_decide(replace(problem), 10.0) for _ in range(REPEATS)]  # no state is kept between decisions
    seconds = statistics.median(answer.seconds for answer in answers)
    jobs, columns, resources = problem.shape
    gap = answers[0].gap or 0.0
    print(f"{jobs:>7} jobs × {columns - 1} × {resources}: {seconds:8.4f} s, gap {gap:.5%}", flush=True)
    return {"jobs": jobs, "seconds": seconds, "gap": gap, "value": answers[0].value}


def _small() -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the gaps of small problems by kind, and the excess of the solvers in the same time."""
    gaps: dict[str, list[float]] = {}
    worse = {"worse_than_highs": -1.0, "worse_than_cp_sat": -1.0}
    for jobs in choose((20, 50, 100), (20, 50, 100), (20,)):
        for kind in KINDS:
            for seed in range(choose(25, 4, 1)):
                problem = instance(jobs, 16, 3, kind, seed)
                answer = _decide(problem, SMALL_S)
                gaps.setdefault(f"{kind}-{jobs}", []).append(answer.gap or 0.0)
                if seed < 3:
                    for name, solver in (("worse_than_highs", highs), ("worse_than_cp_sat", cp_sat)):
                        worse[name] = max(worse[name], solver(problem, SMALL_S).value / answer.value - 1)
    return gaps, worse


def _compare(jobs: int, columns: int, resources: int, kind: str) -> dict[str, Any]:
    """Solve one problem with `default` and with the solvers."""
    problem = instance(jobs, columns, resources, kind, 1)
    row: dict[str, Any] = {"kind": kind, "columns": columns, "resources": resources} | _timed(problem)
    for name, solver in (("highs", highs), ("cp_sat", cp_sat)):
        solved = solver(problem, LIMIT_S)
        row |= {
            f"{name}_s": solved.seconds, f"{name}_proved": solved.proved,
            f"worse_than_{name}": solved.value / row["value"] - 1,
        }  # fmt: skip
        print(f"{'':>7} {name:<7}{solved.seconds:8.2f} s, {'proved' if solved.proved else 'out of time'}, worth "
              f"{solved.value / row['value'] - 1:+.4%}", flush=True)  # fmt: skip
    return row


if __name__ == "__main__":
    main()
