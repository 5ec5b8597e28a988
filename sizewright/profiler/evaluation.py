"""Compare throughput models by replays over tables of measured trials.

A replay fits a model to trials of some of a table's allocations, each drawn at random from the allocation's
measurements, and evaluates it at the others. Errors are relative to the denoised table (`MeasuredTable.smoothed`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.formatting import format_count
from sizewright.models._base import BaseThroughputModel
from sizewright.models.axes import MIN_ALLOCATIONS
from sizewright.models.registry import get_model
from sizewright.profiler.planner.candidates import CandidateSet
from sizewright.profiler.planner.measured_table import MeasuredTable
from sizewright.task_progress import part, steps

Floats = NDArray[np.float64]
NEAR = 0.7
"""Share of the best throughput from which an allocation counts as near the best."""


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


def latin_hypercube(points: Floats, count: int, seed: int) -> list[int]:
    """Return distinct rows of `points` (n, a), in the unit cube, that are nearest to a Latin hypercube sample."""
    from scipy.stats import qmc

    chosen: list[int] = []
    for sample in qmc.LatinHypercube(max(1, points.shape[1]), rng=seed).random(count):
        distances = ((points - sample[: points.shape[1]]) ** 2).sum(axis=1)
        distances[chosen] = np.inf
        chosen.append(int(np.argmin(distances)))
    return chosen


def draw(table: MeasuredTable, allocation: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return a random measured row of an allocation; with throughput 0 if all its trials failed."""
    rows = table.rows[allocation]
    if not len(rows):
        return {str(k): v for k, v in table.allocations.iloc[allocation].items()} | {"throughput": 0.0}
    return {str(k): v for k, v in rows.iloc[int(rng.integers(len(rows)))].items()}
