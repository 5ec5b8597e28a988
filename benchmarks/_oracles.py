"""Noise floors of regret: choosers that know more than any planner can, and still measure with noise.

They show how much of a planner's regret comes from the noise of its trials rather than from its choices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks._regret import SCORINGS, truths
from sizewright.profiler.planner.candidates import CandidateSet
from sizewright.profiler.planner.measured_table import MeasuredTable
from sizewright.profiler.planner.objective import Goal

Floats = NDArray[np.float64]


def _best_measured(
    table: MeasuredTable, rows: NDArray[np.int64], times: int, goal: Goal, rng: np.random.Generator
) -> int:
    """Return the row with the lowest loss when each of `rows` is measured some times."""
    rates = np.full(len(table), 1e-12)
    for row in rows:
        if len(table.measurements[row]):
            rates[row] = np.exp(np.log(rng.choice(table.measurements[row], times)).mean())
    losses = goal._replace(needed=0.8 * rates.max()).losses(np.log(rates))
    return int(rows[np.argmin(losses[rows])])


def eight_best_once(table: MeasuredTable, order: Floats, goal: Goal, rng: np.random.Generator) -> int:
    """Know the eight best allocations, measure each once, and choose the best measurement."""
    return _best_measured(table, np.argsort(order)[:8], 1, goal, rng)


def four_best_twice(table: MeasuredTable, order: Floats, goal: Goal, rng: np.random.Generator) -> int:
    """Know the four best allocations, measure each twice, and choose the best mean."""
    return _best_measured(table, np.argsort(order)[:4], 2, goal, rng)


def all_once(table: MeasuredTable, order: Floats, goal: Goal, rng: np.random.Generator) -> int:
    """Measure every allocation once, and choose the best measurement."""
    return _best_measured(table, np.arange(len(table)), 1, goal, rng)


ORACLES: dict[str, Callable[[MeasuredTable, Floats, Goal, np.random.Generator], int]] = {
    "oracle: the eight best, once": eight_best_once,
    "oracle: the four best, twice": four_best_twice,
    "the whole table, once": all_once,
}


def floors(table: MeasuredTable, seed: int) -> list[dict[str, object]]:
    """Return the regret of each oracle on a table, for each scoring."""
    truth, price = truths(table)["robust"], CandidateSet(table.allocations).hourly_price
    rows: list[dict[str, object]] = []
    for scoring, objective in SCORINGS.items():
        goal = Goal(objective, price, needed=0.8 * float(truth.throughput.max()))
        order = goal.losses(np.log(np.maximum(truth.throughput, 1e-12)))
        for name, choose in ORACLES.items():
            pick = choose(table, order, goal, np.random.default_rng(seed))
            short, excess = truth.reach80(pick) if scoring == "reach80" else (None, None)
            rows.append({"planner": name, "scoring": scoring, "regret": truth.regret(pick, scoring),
                         "short": short, "excess": excess})  # fmt: skip
    return rows
