"""How good planners and models are: replayed over tables of measured trials, against simpler ones, with intervals.

A replay asks a planner for allocations of a table and answers each with one of the allocation's measurements, drawn at
random. Choices are scored against the table with its noise taken out (`MeasuredTable.smoothed`), and raw beside it.
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
from sizewright.how_far import part, steps
from sizewright.models._base import BaseThroughputModel
from sizewright.models.axes import LEAST_ALLOCATIONS
from sizewright.models.default import LEARNED_FROM
from sizewright.models.registry import get_model
from sizewright.models.table import as_columns
from sizewright.profiler.baselines import MakePlanner, latin_hypercube
from sizewright.profiler.candidates import Candidates
from sizewright.profiler.measured_table import MeasuredTable
from sizewright.profiler.regret import SCORINGS, truths
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]
NEAR = 0.7
TOLD_BESIDE = ("status", *LEARNED_FROM)


class Replay(NamedTuple):
    """The trials that a planner asked for, its pick (a row of the table), and the slowest question in seconds."""

    trials: pd.DataFrame
    pick: int
    slowest_ask_s: float


def draw(table: MeasuredTable, place: int, rng: np.random.Generator) -> dict[str, Any]:
    """One of an allocation's measured rows at random; throughput 0 where all its trials failed."""
    rows = table.rows[place]
    if not len(rows):
        return {str(k): v for k, v in table.allocations.iloc[place].items()} | {"throughput": 0.0}
    return {str(k): v for k, v in rows.iloc[int(rng.integers(len(rows)))].items()}


def replay_planner(make: MakePlanner, table: MeasuredTable, objective: str, most: int, seed: int) -> Replay:
    """One replay of at most so many trials."""
    rng = np.random.default_rng(seed)
    planner = make(table.allocations, objective, most, seed)
    places = Candidates(table.allocations)
    trials: list[dict[str, Any]] = []
    slowest_s = 0.0
    while True:
        began = time.perf_counter()
        allocation = planner.ask()
        slowest_s = max(slowest_s, time.perf_counter() - began)
        if allocation is None:
            break
        place = places.place(allocation)
        assert place is not None
        trials.append(draw(table, place, rng))
        told = {name: cell for name, cell in trials[-1].items() if name in TOLD_BESIDE and cell == cell}
        planner.tell(allocation, trials[-1]["throughput"], **told)
    return Replay(pd.DataFrame(trials), places.place(planner.best()) or 0, slowest_s)


def score_planner(make: MakePlanner, table: MeasuredTable, seeds: Sequence[int], trials: int) -> list[dict[str, Any]]:
    """Regret of a planner under each scoring and seed, smoothed and raw, with how many trials it took."""
    against = truths(table)
    rows = []
    for scoring, objective in SCORINGS.items():
        for seed in seeds:
            done = replay_planner(make, table, objective, trials, seed)
            told = {kind: truth.regret(done.pick, scoring) for kind, truth in against.items()}
            rows.append(
                {
                    "table": table.name,
                    "scoring": scoring,
                    "seed": seed,
                    "regret": told["smoothed"],
                    "regret_raw": told["raw"],
                    "trials": len(done.trials),
                    "seconds": float(done.trials["duration_s"].sum()) if "duration_s" in done.trials else None,
                    "slowest_ask_s": done.slowest_ask_s,
                    "told": done.trials,
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
    """Errors and coverage of a model that learned these trials of a table.

    All is of the places that were not tried. Errors are median absolute shares of the smoothed table, `near` where it
    has 70 % of its best and `anywhere`; coverage is of one other measurement of each. NaN where the model cannot be
    fitted, or no such place is left.
    """
    truth = table.smoothed[0]
    rng = np.random.default_rng(seed)
    others = np.array([float(rng.choice(m)) if len(m) else np.nan for m in table.measurements])
    places = Candidates(table.allocations)
    try:
        model = make().fit(trials, trials["throughput"])
        predicted = model.predict(table.allocations)
        lower, upper = model.predict_interval(table.allocations, coverage)
    except InputError:  # too few trials of the kind that the model describes
        return dict.fromkeys(("near", "anywhere", "coverage", "interval_score"), float("nan"))
    unseen = np.isfinite(others)
    unseen[[places.place({str(k): v for k, v in row.items()}) for _, row in trials.iterrows()]] = False
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
    """Trials at the places of a Latin hypercube."""
    rng = np.random.default_rng(seed)
    places = latin_hypercube(Candidates(table.allocations).spread(), min(trials, len(table)), seed)
    return pd.DataFrame([draw(table, place, rng) for place in places])


def extrapolation(
    make: Callable[[], BaseThroughputModel], table: MeasuredTable, seed: int, coverage: float = 0.9
) -> float | None:
    """Share of the measurements at the greatest allocation that the interval holds, fitted on the lower half of each
    axis; None where that half has fewer than five allocations."""
    columns = as_columns(table.allocations, ("workers", "ps", "worker_cpu", "ps_cpu"))
    there = np.array([len(m) > 0 for m in table.measurements])
    lower, size = there.copy(), np.zeros(len(table))
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
    greatest = int(np.argmax(np.where(there, size, -np.inf)))
    model = make().fit(trials, trials["throughput"])
    low, high = model.predict_interval(table.allocations.iloc[[greatest]], coverage)
    measured = table.measurements[greatest]
    return float(np.mean((low[0] <= measured) & (measured <= high[0])))


def paired(ours: Floats, theirs: Floats, groups: Sequence[object]) -> tuple[float, float, float]:
    """Mean of ours − theirs over the same replays, and its 95 % interval.

    Replays of one group, such as a table, are alike: Student's t over the means of the groups, infinite for one.
    """
    gap = np.asarray(ours, float) - np.asarray(theirs, float)
    means = pd.Series(gap).groupby(list(groups)).mean()
    count, mean = len(means), float(means.mean())
    half = float(stdtrit(count - 1, 0.975) * means.std() / np.sqrt(count)) if count > 1 else float("inf")
    return mean, mean - half, mean + half


def compare_models(
    tables: Sequence[MeasuredTable], names: Sequence[str], trials: int = 8, seeds: Sequence[int] = range(5)
) -> list[dict[str, Any]]:
    """Each model on each table: medians over seeds of its errors from so many space-filling trials, mean coverage and
    interval score, and the share of replays in which it could be fitted.

    A third of a table's allocations at least is left to be told. Raises InputError where a table is too small.
    """
    rows = []
    for number, table in enumerate(tables):
        most = 2 * len(table) // 3
        if most < LEAST_ALLOCATIONS + 1:
            raise InputError(
                f"{table.name} has {format_count(len(table), 'allocation')}, too few to compare.",
                "Bring a larger table.",
            )
        drawn = [space_filling(table, min(trials, most), seed) for seed in seeds]
        with part("comparing models", number, len(tables)):
            rows += [_compared(table, name, drawn, seeds) for name in steps("models", names)]
    return rows


def _compared(table: MeasuredTable, name: str, drawn: Sequence[pd.DataFrame], seeds: Sequence[int]) -> dict[str, Any]:
    scores = [score_model(lambda: get_model(name), table, d, seed) for seed, d in zip(seeds, drawn, strict=True)]
    columns = {key: np.array([score[key] for score in scores]) for key in scores[0]}
    fitted = np.isfinite(columns["anywhere"])
    summary = {key: _finite(values, fitted, key) for key, values in columns.items()}
    return {"table": table.name, "model": name, **summary, "fitted": float(fitted.mean())}


def _finite(values: Floats, fitted: NDArray[np.bool_], key: str) -> float | None:
    if not fitted.any():
        return None
    there = values[fitted & np.isfinite(values)]
    return float((np.median if key in ("near", "anywhere") else np.mean)(there)) if len(there) else None
