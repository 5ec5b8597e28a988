"""Replays of planners and models over tables of measured trials.

A replay asks a planner for allocations of a table and answers each with one of the allocation's measurements, drawn at
random. Choices are scored against the denoised table (`MeasuredTable.smoothed`) with ties, and also against that of the
measurements as they are, without ties, and against the raw table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from benchmarks._baselines import MakePlanner
from benchmarks._regret import SCORINGS, truths
from sizewright.models._base import BaseThroughputModel
from sizewright.models.default.predictor import AUXILIARY_COLUMNS
from sizewright.models.table import as_columns
from sizewright.profiler.evaluation import draw
from sizewright.profiler.planner.candidates import CandidateSet
from sizewright.profiler.planner.measured_table import MeasuredTable

Floats = NDArray[np.float64]
_AUXILIARY_COLUMNS = ("status", *AUXILIARY_COLUMNS)
"""Columns of a trial that a planner gets along with its throughput."""


class PlannerReplay(NamedTuple):
    """The trials that a planner asked for, its pick (a row of the table), and its slowest `ask` in seconds."""

    trials: pd.DataFrame
    pick: int
    slowest_ask_s: float


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
        # `cell == cell` leaves NaN out
        columns = {name: cell for name, cell in trial.items() if name in _AUXILIARY_COLUMNS and cell == cell}
        planner.tell(allocation, trial["throughput"], **columns)
    return PlannerReplay(pd.DataFrame(trials), candidates.index_of(planner.best()) or 0, slowest_s)


def score_planner(
    make: MakePlanner,
    table: MeasuredTable,
    seeds: Sequence[int],
    trials: int,
    scorings: Sequence[str] = tuple(SCORINGS),
) -> list[dict[str, Any]]:
    """Return the regrets of a planner against each truth, for each scoring and seed, and its number of trials.

    For `reach80` also whether the pick falls `short`, and the `excess` cost of one that does not.
    """
    truth = truths(table)
    rows = []
    for scoring, objective in ((name, SCORINGS[name]) for name in scorings):
        for seed in seeds:
            replay = replay_planner(make, table, objective, trials, seed)
            short, excess = truth["robust"].reach80(replay.pick) if scoring == "reach80" else (None, None)
            old_short, old_excess = truth["old"].reach80(replay.pick) if scoring == "reach80" else (None, None)
            duration_s = float(replay.trials["duration_s"].sum()) if "duration_s" in replay.trials else None
            rows.append(
                {
                    "table": table.name,
                    "scoring": scoring,
                    "seed": seed,
                    "regret": truth["robust"].regret(replay.pick, scoring),
                    "regret_old": truth["old"].regret(replay.pick, scoring),
                    "regret_raw": truth["raw"].regret(replay.pick, scoring),
                    "short": short,
                    "excess": excess,
                    "short_old": old_short,
                    "excess_old": old_excess,
                    "trials": len(replay.trials),
                    "seconds": duration_s,
                    "slowest_ask_s": replay.slowest_ask_s,
                }
            )
    return rows


def extrapolation(
    make: Callable[[], BaseThroughputModel], table: MeasuredTable, seed: int, coverage: float = 0.9
) -> float | None:
    """Return the coverage of the largest allocation's measurements after fitting the lower half of each axis.

    Return None if that half has fewer than five allocations.
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
