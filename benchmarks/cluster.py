"""The comparisons of the papers in simulation, at loads of .7, .9 and 1.1, over several seeds, with intervals.

Gains of times are 1 − ours / theirs (0.32 is a third less); gains of efficiency and use are ours / theirs − 1; ratios
are theirs / ours. Each is computed from means over the seeds, with 95 % intervals in the details. `_cluster_cases.py`
describes each setting, and reconstructs what the papers do not give.

- Huawei (arXiv 2109.03389): the paper says little about its greedy policy; we use first-come-minimum-then-double.
  `queueing_gain_vs_greedy` and `efficiency_gain_vs_greedy` compare ours (`default`) with it at .9; others compare with
  slope greedy. The requested size is the smallest one; the `around_…` figures also allow sizes down to a quarter.
- Aryl (arXiv 2202.07896): loaning and elasticity against neither, at .9. The details also have 1.6, where the training
  servers alone cannot do the work. Elastic are 5 % of the jobs, or all (`…all_elastic…`); in `…kinds…`, lent servers
  are half as fast. `…use_gain…` counts all servers while jobs arrive, `…use_to_end_gain` to the end of the last job.
  `…most_use_gain…` is the highest gain that any policy could have.
- DLRover-RM (arXiv 2304.01468): three stages against users' static sizes, at .9.
- `default_vs_best_published` is the excess of the mean completion time of `default` over the best published policy, at
  the load and the sizes where it is largest. `default_vs_best_on_average` compares with the policy that is best over
  all loads. `default_vs_best_error_1` is the first at .9, where known durations have an error of σ 1 instead of .5.

`--resume` runs the cases that an interrupted run has not kept in `results/cluster_runs.jsonl`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._cluster_cases import JOBS, LOAN_JOBS, Case, run
from benchmarks._kept_rows import KeptRows
from benchmarks._measured import each_on_all_cores
from benchmarks._report import choose, finish
from sizewright.cluster.allocators.registry import ALLOCATORS

LOADS = choose((0.7, 0.9, 1.1), (0.7, 0.9, 1.1), (0.9,))
BEYOND = choose((1.6,), (1.6,), ())
"""A further load for loaning only."""
SIZES = ("minimum", "around")
SEEDS = range(choose(6, 2, 1))
PUBLISHED = tuple(sorted(set(ALLOCATORS) - {"default", "lagrangian", "mip", "dynamic"}))
"""All policies with an objective of their own; the others maximise given utilities."""
LOANING = (
    "neither:fifo",
    "both:aryl",
    "both:default",
    *choose(("loaning:fifo", "elastic:aryl"), ("loaning:fifo", "elastic:aryl"), ()),
)
ALL_BY_LENDING = ("both:aryl", "both:default")
LENDING = {
    "loaning_all_elastic": ALL_BY_LENDING,
    "loaning_kinds": ALL_BY_LENDING,
    "loaning_all_elastic_kinds": ("both:default",),
}
"""Scenarios beside `loaning`, with the policies that lend; they share its baseline `neither:fifo`."""
LENDING_SEEDS = range(choose(3, 1, 1))
OVERLOAD = 1.6
TARGETS = {
    "queueing_gain_vs_greedy": ">= 0.32", "efficiency_gain_vs_greedy": ">= 0.24", "queueing_gain_vs_slope": "a few %",
    "efficiency_gain_vs_slope": "a few %", "loaning_queueing_ratio": ">= 1.53", "loaning_jct_ratio": ">= 1.50",
    "loaning_use_gain": ">= 0.269", "stages_jct_gain": ">= 0.31", "default_vs_best_published": "<= 0",
    "default_vs_best_on_average": "< 0", "default_vs_best_error_1": "<= 0", "loaning_use_gain_all_elastic": ">= 0.25",
}  # fmt: skip
STAGES = ("static", "stages", "sized")


def _less(ratio: float) -> float:
    return 1 - ratio


def _more(ratio: float) -> float:
    return ratio - 1


def _times(ratio: float) -> float:
    return 1 / ratio


AGAINST = {"most_use": "overall_use"}
"""A bound of ours is compared with what the baseline reached."""
COMPARED: dict[str, tuple[str, str, str, str, Callable[[float], float]]] = {
    "queueing_gain_vs_greedy": ("minimum", "default", "doubling", "queueing_s", _less),
    "efficiency_gain_vs_greedy": ("minimum", "default", "doubling", "efficiency", _more),
    "queueing_gain_vs_slope": ("minimum", "default", "slope", "queueing_s", _less),
    "efficiency_gain_vs_slope": ("minimum", "default", "slope", "efficiency", _more),
    "around_queueing_gain_vs_greedy": ("around", "default", "doubling", "queueing_s", _less),
    "around_efficiency_gain_vs_greedy": ("around", "default", "doubling", "efficiency", _more),
    "around_jct_gain_vs_greedy": ("around", "default", "doubling", "jct_s", _less),
    "speed_while_running_gain_vs_greedy": ("minimum", "default", "doubling", "speed_while_running", _more),
    "jct_gain_vs_greedy": ("minimum", "default", "doubling", "jct_s", _less),
    "jct_gain_vs_slope": ("minimum", "default", "slope", "jct_s", _less),
    "loaning_queueing_ratio": ("loaning", "both:default", "neither:fifo", "queueing_s", _times),
    "loaning_jct_ratio": ("loaning", "both:default", "neither:fifo", "jct_s", _times),
    "loaning_use_gain": ("loaning", "both:default", "neither:fifo", "overall_use", _more),
    "loaning_use_to_end_gain": ("loaning", "both:default", "neither:fifo", "use_to_end", _more),
    "loaning_most_use_gain": ("loaning", "both:default", "neither:fifo", "most_use", _more),
    "loaning_all_elastic_queueing_ratio": (
        "loaning_all_elastic", "both:default", "neither:fifo", "queueing_s", _times
    ),
    "loaning_all_elastic_jct_ratio": ("loaning_all_elastic", "both:default", "neither:fifo", "jct_s", _times),
    "loaning_use_gain_all_elastic": ("loaning_all_elastic", "both:default", "neither:fifo", "overall_use", _more),
    "loaning_use_to_end_gain_all_elastic": (
        "loaning_all_elastic", "both:default", "neither:fifo", "use_to_end", _more
    ),
    "loaning_most_use_gain_all_elastic": ("loaning_all_elastic", "both:default", "neither:fifo", "most_use", _more),
    "aryl_loaning_use_gain_all_elastic": ("loaning_all_elastic", "both:aryl", "neither:fifo", "overall_use", _more),
    "loaning_kinds_queueing_ratio": ("loaning_kinds", "both:default", "neither:fifo", "queueing_s", _times),
    "loaning_kinds_jct_ratio": ("loaning_kinds", "both:default", "neither:fifo", "jct_s", _times),
    "loaning_kinds_use_gain": ("loaning_kinds", "both:default", "neither:fifo", "overall_use", _more),
    "loaning_kinds_use_to_end_gain": ("loaning_kinds", "both:default", "neither:fifo", "use_to_end", _more),
    "loaning_kinds_most_use_gain": ("loaning_kinds", "both:default", "neither:fifo", "most_use", _more),
    "loaning_kinds_jct_ratio_all_elastic": (
        "loaning_all_elastic_kinds", "both:default", "neither:fifo", "jct_s", _times
    ),
    "loaning_kinds_use_gain_all_elastic": (
        "loaning_all_elastic_kinds", "both:default", "neither:fifo", "overall_use", _more
    ),
    "loaning_kinds_most_use_gain_all_elastic": (
        "loaning_all_elastic_kinds", "both:default", "neither:fifo", "most_use", _more
    ),
    "stages_jct_gain": ("stages", "stages", "static", "jct_s", _less),
    "mip_queueing_gain_vs_greedy": ("minimum", "progress-mip", "doubling", "queueing_s", _less),
    "mip_efficiency_gain_vs_greedy": ("minimum", "progress-mip", "doubling", "efficiency", _more),
    "aryl_loaning_queueing_ratio": ("loaning", "both:aryl", "neither:fifo", "queueing_s", _times),
    "aryl_loaning_jct_ratio": ("loaning", "both:aryl", "neither:fifo", "jct_s", _times),
    "aryl_loaning_use_gain": ("loaning", "both:aryl", "neither:fifo", "overall_use", _more),
    "sized_jct_gain": ("stages", "sized", "static", "jct_s", _less),
}  # fmt: skip
"""By name: kind of case, our policy, their policy, the compared figure, and the form of the ratio ours / theirs."""
Rows = dict[tuple[str, str, float, int], dict[str, Any]]


def main() -> None:
    kinds = {**dict.fromkeys(SIZES, ("default", *PUBLISHED)), "loaning": LOANING, "stages": STAGES} | LENDING
    cases = [
        Case(kind, policy, load, seed)
        for kind, policies in kinds.items()
        for load in (*LOADS, *BEYOND) if load in LOADS or kind in ("loaning", *LENDING)
        for policy in policies for seed in _seeds(kind)
    ] + [Case("error_1", policy, 0.9, seed) for policy in ("default", *PUBLISHED) for seed in SEEDS]  # fmt: skip
    kept = KeptRows("cluster")
    done = {_case_of(row) for row in kept.rows}
    for row in each_on_all_cores(run, [case for case in cases if case not in done]):
        kept.add(row)
    rows: Rows = {_case_of(row): row for row in kept.rows}
    _print(rows)
    by_load = {
        load: {
            name: _compared(rows, load, *comparison)
            for name, comparison in COMPARED.items()
            if (comparison[0], comparison[1], load, 0) in rows
        }
        for load in (*LOADS, *BEYOND)
    }
    for load, comparisons in by_load.items():
        for name, (mean, lower, upper) in comparisons.items():
            print(f"load {load:g}  {name:<36}{mean:8.3f}  ({lower:.3f} to {upper:.3f})")
    figures = {name: interval[0] for name, interval in by_load[0.9].items()} | _default(rows)
    for name, interval in by_load.get(OVERLOAD, {}).items():
        if "use" in name:
            figures[f"{name}_overload"] = interval[0]
    intervals = {name: interval[1:] for name, interval in by_load[0.9].items()}
    others = {f"{load:g}": values for load, values in by_load.items() if load != 0.9}
    finish(
        "cluster",
        figures,
        TARGETS,
        {"jobs": JOBS, "loan_jobs": LOAN_JOBS, "intervals": intervals, "at": others, "means": _means(rows)},
    )
    kept.remove()


def _case_of(row: dict[str, Any]) -> Case:
    return Case(row["kind"], row["policy"], row["load"], row["seed"])


def _compared(
    rows: Rows, load: float, kind: str, ours: str, theirs: str, what: str, form: Callable[[float], float]
) -> tuple[float, float, float]:
    """Return the ratio of the means over the seeds, with the 95 % interval of a paired bootstrap over the seeds."""
    base = "loaning" if kind in LENDING else kind
    ours_ = np.array([rows[kind, ours, load, seed][what] for seed in _seeds(kind)])
    theirs_ = np.array([rows[base, theirs, load, seed][AGAINST.get(what, what)] for seed in _seeds(kind)])
    drawn = np.random.default_rng(0).integers(len(ours_), size=(2000, len(ours_)))
    ratios = ours_[drawn].mean(axis=1) / theirs_[drawn].mean(axis=1)
    ends = sorted(form(float(np.quantile(ratios, q))) for q in (0.025, 0.975))
    return form(float(ours_.mean() / theirs_.mean())), ends[0], ends[1]


def _seeds(kind: str) -> range:
    return LENDING_SEEDS if kind in LENDING else SEEDS


def _default(rows: Rows) -> dict[str, float]:
    """Compare mean completion times of `default` with the published policies, per load and on average."""
    relative = _relative_jct(rows, [(kind, load) for kind in SIZES for load in LOADS])
    return {
        "default_vs_best_published": max(map(max, relative.values())),
        "default_vs_best_on_average": max(float(np.mean(values)) for values in relative.values()),
        "default_vs_best_error_1": max(map(max, _relative_jct(rows, [("error_1", 0.9)]).values())),
    }


def _relative_jct(rows: Rows, cases: list[tuple[str, float]]) -> dict[str, list[float]]:
    """Return the excess of the mean completion time of `default` over each published policy, in each kind and load."""

    def jct_s(policy: str) -> list[float]:
        return [float(np.mean([rows[k, policy, load, seed]["jct_s"] for seed in SEEDS])) for k, load in cases]

    ours = jct_s("default")
    return {policy: [a / b - 1 for a, b in zip(ours, jct_s(policy), strict=True)] for policy in PUBLISHED}


def _means(rows: Rows) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (kind, policy, load, _), row in rows.items():
        for name in (
            "queueing_s",
            "jct_s",
            "jct_p99_s",
            "use",
            "overall_use",
            "use_to_end",
            "demanded_use",
            "most_use",
            "efficiency",
            "speed_while_running",
            "preemptions",
            "lent",
        ):
            if name in row:
                values[f"{kind} {load:g} {policy}"][name].append(row[name])
    return {case: {name: round(float(np.mean(v)), 4) for name, v in values[case].items()} for case in values}


def _print(rows: Rows) -> None:
    for case, figures in _means(rows).items():
        print(f"{case:<34}" + "  ".join(f"{name} {value:,.4g}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
