"""Decisions of `default`: how long they take, and how far from the best they can be; the same problems beside HiGHS
and CP-SAT, to which a gap of 1e-3 is enough.

Seconds are the median of five decisions of the slowest problem; gaps are those of the worst problem, except
`small_multi_gap`, which 90 % of the problems of 20, 50 and 100 jobs are within after a second at most.
`speedup_vs_highs` is the least over all problems of 1,000 jobs and more, where a solver that ran into its time limit
counts with that; `worse_than_highs` is the most by which its choice was worth more than ours, there and where jobs
are few. Solvers are timed without the making of their models, ours with all of it. The main figures of CP-SAT are
beside them.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._instances import KINDS, instance
from benchmarks._report import choose, finish
from benchmarks._solvers import cp_sat, highs
from sizewright.cluster.allocators.default import Default
from sizewright.cluster.problem.problem import Problem
from sizewright.cluster.problem.solution import Solution

TARGETS = {
    "single_1000_s": "<= 0.05", "single_1000_gap": "<= 0.001", "multi_100k_s": "<= 2", "multi_100k_gap": "<= 0.001",
    "small_multi_gap": "<= 0.001", "speedup_vs_highs": ">= 20", "worse_than_highs": "<= 0.001",
}  # fmt: skip
LIMIT_S = choose(60.0, 20.0, 0.5)
SMALL_S = choose(1.0, 1.0, 0.2)
REPEATS = choose(5, 5, 1)


def main() -> None:
    single = [_timed(instance(1000, 32, 1, kind, seed)) for kind in KINDS for seed in range(choose(5, 1, 1))]
    multi = [_timed(instance(choose(100_000, 10_000, 1_000), 16, 3, kind, 0)) for kind in KINDS]
    small, fewer = _small()
    beside = [_beside(*shape) for shape in _SHAPES[: choose(len(_SHAPES), 2, 1)]]
    within: dict[str, float] = {name: float(np.mean(np.array(gaps) <= 1e-3)) for name, gaps in small.items()}
    figures = {
        "single_1000_s": max(row["seconds"] for row in single),
        "single_1000_gap": max(row["gap"] for row in single),
        "multi_100k_s": max(row["seconds"] for row in multi),
        "multi_100k_gap": max(row["gap"] for row in multi),
        "small_multi_within": float(np.mean([gap <= 1e-3 for gaps in small.values() for gap in gaps])),
        "small_multi_worst_kind_within": min(within.values()),
        "small_multi_gap": float(np.quantile([gap for gaps in small.values() for gap in gaps], 0.9, method="higher")),
        "speedup_vs_highs": min(row["highs_s"] / row["seconds"] for row in beside),
        "worse_than_highs": max(fewer["worse_than_highs"], *(row["worse_than_highs"] for row in beside)),
        "speedup_vs_cp_sat": min(row["cp_sat_s"] / row["seconds"] for row in beside),
        "worse_than_cp_sat": max(fewer["worse_than_cp_sat"], *(row["worse_than_cp_sat"] for row in beside)),
    }
    for name, share in within.items():
        print(f"{name:<12}{share:6.0%} of {len(small[name])} problems within 0.1 % after {SMALL_S:g} s at most")
    finish("allocators", figures, TARGETS, {"single": single, "multi": multi, "small_within": within, "beside": beside})


_SHAPES = ((1000, 32, 1, "random"), (1000, 16, 3, "ps"), (1000, 16, 3, "random"), (1000, 32, 1, "ps"),
           (5000, 16, 3, "ps"), (5000, 16, 3, "random"))  # fmt: skip


def _decided(problem: Problem, limit_s: float) -> Solution:
    answer = Default()(problem, limit_s)
    assert problem.fits(answer.choice)
    assert answer.gap is not None
    return answer


def _timed(problem: Problem) -> dict[str, float]:
    answers = [_decided(replace(problem), 10.0) for _ in range(REPEATS)]  # nothing is kept from one to the next
    seconds = statistics.median(answer.seconds for answer in answers)
    jobs, columns, resources = problem.shape
    gap = answers[0].gap or 0.0
    print(f"{jobs:>7} jobs × {columns - 1} × {resources}: {seconds:8.4f} s, gap {gap:.5%}", flush=True)
    return {"jobs": jobs, "seconds": seconds, "gap": gap, "value": answers[0].value}


def _small() -> tuple[dict[str, list[float]], dict[str, float]]:
    """Gaps of few jobs by kind, and by how much the solvers do better in the same second."""
    gaps: dict[str, list[float]] = {}
    worse = {"worse_than_highs": -1.0, "worse_than_cp_sat": -1.0}
    for jobs in choose((20, 50, 100), (20, 50, 100), (20,)):
        for kind in KINDS:
            for seed in range(choose(25, 4, 1)):
                problem = instance(jobs, 16, 3, kind, seed)
                answer = _decided(problem, SMALL_S)
                gaps.setdefault(f"{kind}-{jobs}", []).append(answer.gap or 0.0)
                if seed < 3:
                    for name, solver in (("worse_than_highs", highs), ("worse_than_cp_sat", cp_sat)):
                        worse[name] = max(worse[name], solver(problem, SMALL_S).value / answer.value - 1)
    return gaps, worse


def _beside(jobs: int, columns: int, resources: int, kind: str) -> dict[str, Any]:
    """Ours and the solvers, one after the other."""
    problem = instance(jobs, columns, resources, kind, 1)
    row: dict[str, Any] = {"kind": kind, "columns": columns, "resources": resources} | _timed(problem)
    for name, solver in (("highs", highs), ("cp_sat", cp_sat)):
        found = solver(problem, LIMIT_S)
        row |= {
            f"{name}_s": found.seconds, f"{name}_proved": found.proved,
            f"worse_than_{name}": found.value / row["value"] - 1,
        }  # fmt: skip
        print(f"{'':>7} {name:<7}{found.seconds:8.2f} s, {'proved' if found.proved else 'out of time'}, worth "
              f"{found.value / row['value'] - 1:+.4%}", flush=True)  # fmt: skip
    return row


if __name__ == "__main__":
    main()
