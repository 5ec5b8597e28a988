"""Evaluate planners and models by replays over tables of measured trials, against baselines, with intervals.

A replay asks a planner for allocations of a table and answers each with one of the allocation's measurements, drawn at
random. Choices are scored against the denoised table (`MeasuredTable.smoothed`), and also against the raw one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from sizewright.errors import InputError
from sizewright.models._base import BaseThroughputModel
from sizewright.models.axes import MIN_ALLOCATIONS
from sizewright.models.default.predictor import AUXILIARY_COLUMNS
from sizewright.models.registry import get_model
from sizewright.models.table import as_columns
from sizewright.profiler.baselines import MakePlanner, latin_hypercube
from sizewright.profiler.planner.candidates import CandidateSet
from sizewright.profiler.planner.measured_table import MeasuredTable
from sizewright.profiler.regret import SCORINGS, truths
from sizewright.spec.units import format_count
from sizewright.task_progress import part, steps

Floats = NDArray[np.float64]
NEAR = 0.7
"""Share of the best throughput from which an allocation counts as near the best."""
_TOLD_COLUMNS = ("status", *AUXILIARY_COLUMNS)
"""Columns of a trial that a planner is told along with its throughput."""


class PlannerReplay(NamedTuple):
    """The trials that a planner asked for, its pick (a row of the table), and its slowest `ask` in seconds."""

    trials: pd.DataFrame
    pick: int
    slowest_ask_s: float


def draw(table: MeasuredTable, allocation: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return a random measured row of an allocation; with throughput 0 if all its trials failed."""
    rows = table.rows[allocation]
    if not len(rows):
        return {str(k): v for k, v in table.allocations.iloc[allocation].items()} | {"throughput": 0.0}
    return {str(k): v for k, v in rows.iloc[int(rng.integers(len(rows)))].items()}


def replay_planner(
    make: MakePlanner, table: MeasuredTable, objective: str, max_trials: int, seed: int
) -> PlannerReplay:
    """Replay a planner once, with at most `max_trials` trials."""
    rng = np.random.default_rng(seed)
    planner = make(table.allocations, objective, max_trials, seed)
    candidates = CandidateSet(table.allocations)
    trials: list[dict[str, Any]] = []
    slowest_s = 0.0
    while True:
        began = time.perf_counter()
        allocation = planner.ask()
        slowest_s = max(slowest_s, time.perf_counter() - began)
        if allocation is None:
            break
        candidate = candidates.index_of(allocation)
        assert candidate is not None
        trial = draw(table, candidate, rng)
        trials.append(trial)
        columns = {name: cell for name, cell in trial.items() if name in _TOLD_COLUMNS and cell == cell}  # without NaN
        planner.tell(allocation, trial["throughput"], **columns)
    return PlannerReplay(pd.DataFrame(trials), candidates.index_of(planner.best()) or 0, slowest_s)


def score_planner(make: MakePlanner, table: MeasuredTable, seeds: Sequence[int], trials: int) -> list[dict[str, Any]]:
    """Return the smoothed and raw regret of a planner for each scoring and seed, and its number of trials."""
    truth = truths(table)
    rows = []
    for scoring, objective in SCORINGS.items():
        for seed in seeds:
            replay = replay_planner(make, table, objective, trials, seed)
            duration_s = float(replay.trials["duration_s"].sum()) if "duration_s" in replay.trials else None
            rows.append(
                {
                    "table": table.name,
                    "scoring": scoring,
                    "seed": seed,
                    "regret": truth["smoothed"].regret(replay.pick, scoring),
                    "regret_raw": truth["raw"].regret(replay.pick, scoring),
                    "trials": len(replay.trials),
                    "seconds": duration_s,
                    "slowest_ask_s": replay.slowest_ask_s,
                    "told": replay.trials,
                }
            )
    return rows


def score_model(
    make: Callable[[], BaseThroughputModel],
    table: MeasuredTable,
    trials: pd.DataFrame,
    seed: int = 0,
    coverage: float = 0.9,
) -> dict[str, float]:
    """Return errors and coverage of a model that is fitted to some trials of a table.

    They are evaluated at the allocations without a trial. Errors are median absolute relative errors against the
    smoothed table: `near`, where it has at least 70 % of its best throughput, and `anywhere`. Coverage is that of one
    other measurement of each. Values are NaN if the model cannot be fitted, or no such allocation remains.
    """
    truth = table.smoothed[0]
    rng = np.random.default_rng(seed)
    others = np.array([float(rng.choice(m)) if len(m) else np.nan for m in table.measurements])
    candidates = CandidateSet(table.allocations)
    try:
        model = make().fit(trials, trials["throughput"])
        predicted = model.predict(table.allocations)
        lower, upper = model.predict_interval(table.allocations, coverage)
    except InputError:  # too few trials of the kind that the model describes
        return dict.fromkeys(("near", "anywhere", "coverage", "interval_score"), float("nan"))
    unseen = np.isfinite(others)
    unseen[[candidates.index_of({str(k): v for k, v in row.items()}) for _, row in trials.iterrows()]] = False
    low, high, other = (np.log(np.maximum(v[unseen], 1e-12)) for v in (lower, upper, others))
    error = np.abs(predicted[unseen] / truth[unseen] - 1)
    close = truth[unseen] >= NEAR * truth.max()
    penalty = 2 / (1 - coverage) * (np.maximum(low - other, 0) + np.maximum(other - high, 0))
    return {
        "near": float(np.median(error[close])) if close.any() else float("nan"),
        "anywhere": float(np.median(error)) if len(error) else float("nan"),
        "coverage": float(np.mean((low <= other) & (other <= high))) if len(other) else float("nan"),
        "interval_score": float(np.mean(high - low + penalty)) if len(other) else float("nan"),
    }


def space_filling(table: MeasuredTable, trials: int, seed: int) -> pd.DataFrame:
    """Return trials at the allocations of a Latin hypercube sample."""
    rng = np.random.default_rng(seed)
    rows = latin_hypercube(CandidateSet(table.allocations).scaled_coordinates(), min(trials, len(table)), seed)
    return pd.DataFrame([draw(table, row, rng) for row in rows])


def extrapolation(
    make: Callable[[], BaseThroughputModel], table: MeasuredTable, seed: int, coverage: float = 0.9
) -> float | None:
    """Return the coverage of the largest allocation's measurements after fitting the lower half of each axis.

    None if that half has fewer than five allocations.
    """
    columns = as_columns(table.allocations, ("workers", "ps", "worker_cpu", "ps_cpu"))
    measured = np.array([len(m) > 0 for m in table.measurements])
    lower = measured.copy()
    size = np.zeros(len(table))
    for column in columns.values():
        values = np.unique(column[np.isfinite(column)])
        if len(values) > 1:
            lower &= column <= values[(len(values) - 1) // 2]
            size += np.log(np.where(column > 0, column, 0.5))
    rows = np.flatnonzero(lower)
    if len(rows) < 5:
        return None
    rng = np.random.default_rng(seed)
    trials = pd.DataFrame([draw(table, int(i), rng) for i in rows])
    largest = int(np.argmax(np.where(measured, size, -np.inf)))
    model = make().fit(trials, trials["throughput"])
    low, high = model.predict_interval(table.allocations.iloc[[largest]], coverage)
    rates = table.measurements[largest]
    return float(np.mean((low[0] <= rates) & (rates <= high[0])))


def paired(ours: Floats, theirs: Floats, groups: Sequence[object]) -> tuple[float, float, float]:
    """Return the mean of `ours` − `theirs` over the same replays, and its 95 % interval.

    Replays of one group, such as a table, are correlated: the interval is Student's t over the means of the groups, and
    infinite for a single group.
    """
    difference = np.asarray(ours, float) - np.asarray(theirs, float)
    means = pd.Series(difference).groupby(list(groups)).mean()
    count, mean = len(means), float(means.mean())
    half_width = float(stdtrit(count - 1, 0.975) * means.std() / np.sqrt(count)) if count > 1 else float("inf")
    return mean, mean - half_width, mean + half_width


def compare_models(
    tables: Sequence[MeasuredTable], names: Sequence[str], trials: int = 8, seeds: Sequence[int] = range(5)
) -> list[dict[str, Any]]:
    """Evaluate each model on each table after a number of space-filling trials.

    A row has the medians over seeds of its errors, the means of coverage and interval score, and the share of replays
    in which the model could be fitted. At least a third of a table's allocations is held out. Raises InputError if a
    table is too small.
    """
    rows = []
    for number, table in enumerate(tables):
        max_trials = 2 * len(table) // 3
        if max_trials < MIN_ALLOCATIONS + 1:
            raise InputError(
                f"{table.name} has {format_count(len(table), 'allocation')}, too few to compare.",
                "Use a larger table.",
            )
        drawn = [space_filling(table, min(trials, max_trials), seed) for seed in seeds]
        with part("comparing models", number, len(tables)):
            rows += [_evaluate_model(table, name, drawn, seeds) for name in steps("models", names)]
    return rows


def _evaluate_model(
    table: MeasuredTable, name: str, drawn: Sequence[pd.DataFrame], seeds: Sequence[int]
) -> dict[str, Any]:
    scores = [score_model(lambda: get_model(name), table, d, seed) for seed, d in zip(seeds, drawn, strict=True)]
    columns = {key: np.array([score[key] for score in scores]) for key in scores[0]}
    fitted = np.isfinite(columns["anywhere"])
    summary = {key: _summarize(values, fitted, key) for key, values in columns.items()}
    return {"table": table.name, "model": name, **summary, "fitted": float(fitted.mean())}


def _summarize(values: Floats, fitted: NDArray[np.bool_], key: str) -> float | None:
    if not fitted.any():
        return None
    finite = values[fitted & np.isfinite(values)]
    average = np.median if key in ("near", "anywhere") else np.mean
    return float(average(finite)) if len(finite) else None
