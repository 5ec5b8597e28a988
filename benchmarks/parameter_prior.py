"""Learn the prior of parameters with each family of tables left out in turn, and compare it with the one set by hand.

Families are this project's grids, TrimTuner's and Gavel's tables, and the jobs of the trial bank. The error is that of
predictions anywhere and near the best from eight space-filling trials of the tables of the family that was left out.
A full run keeps the priors without a family in `benchmarks/parameters`.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd

from benchmarks._left_out import FAMILIES, PARAMETERS, learned_family
from benchmarks._measured import SEEDS, all_tables, low_noise_tables, on_all_cores, one_thread
from benchmarks._report import QUICK, SMOKE, finish
from sizewright.models import ThroughputModel
from sizewright.models.default import curve
from sizewright.models.default.parameter_prior import (
    MIN_TABLES,
    NamedTable,
    Normals,
    ParameterPrior,
    learn_parameters,
)
from sizewright.models.default.predictor import posterior_draws
from sizewright.profiler.evaluation import score_model, space_filling
from sizewright.profiler.parameter_tables import bank_tables, parameter_table
from sizewright.profiler.planner.measured_table import MeasuredTable

TRIALS = 8
TARGETS = {
    "anywhere_learned": "≤ anywhere_hand_set: a learned prior should not be worse than one set by hand",
    "near_learned": "≤ near_hand_set",
}
HAND_SET: Normals = {name: (parameter.mean, parameter.sd) for name, parameter in curve.PARAMETERS.items()}


def known_tables() -> list[NamedTable]:
    """Return all tables that a prior of parameters may learn from."""
    tables = [parameter_table(table, learned_family(table)) for table in all_tables()]
    bank = bank_tables()
    return tables + (bank[:3] if SMOKE else bank)


def learn(tables: list[NamedTable]) -> ParameterPrior:
    with ProcessPoolExecutor(os.cpu_count(), initializer=one_thread) as pool:
        return learn_parameters(tables, posterior_draws, pool.map)


def score(table: MeasuredTable, which: str, normals: Normals, seed: int) -> dict[str, object]:
    scores = score_model(lambda: ThroughputModel(normals), table, space_filling(table, TRIALS, seed), seed)
    return {"family": learned_family(table), "prior": which, "table": table.name, **scores}


def main() -> None:
    tables = known_tables()
    others = {name: [table for table in tables if table.family != name] for name in FAMILIES}
    without = {name: learn(rest) for name, rest in others.items() if len(rest) >= MIN_TABLES}
    judged = all_tables() + low_noise_tables()
    work = [
        (table, which, normals, seed)
        for table in judged
        for which, normals in (("hand_set", HAND_SET), ("learned", without[learned_family(table)].normals))
        for seed in SEEDS
    ]
    rows = pd.DataFrame(on_all_cores(score, *zip(*work, strict=True)))
    shown = rows.groupby(["family", "prior"])[["near", "anywhere", "coverage", "interval_score"]].mean()
    print(shown.round(3).to_string())
    mean = rows.groupby("prior")[["near", "anywhere", "coverage", "interval_score"]].mean()
    figures = {f"{place}_{which}": float(mean.loc[which, place]) for place in mean.columns for which in mean.index}
    figures["tables"] = len(tables)
    if not QUICK:
        PARAMETERS.mkdir(exist_ok=True)
        for name, prior in without.items():
            prior.save(PARAMETERS / f"without-{name}.json")
    details = {
        "families": shown.round(4).reset_index().to_dict("records"),
        "parameters": {name: dict(prior.normals) for name, prior in without.items()},
        "hand_set": dict(HAND_SET),
    }
    finish("parameter_prior", figures, TARGETS, details, keep=bool(np.isfinite(list(figures.values())).all()))


if __name__ == "__main__":
    main()
