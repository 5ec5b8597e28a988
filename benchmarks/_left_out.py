"""The default model and planner with a prior of parameters that was learned without the family of a table.

The priors are kept in `benchmarks/parameters`; `python -m benchmarks.parameter_prior` learns them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pandas as pd

from benchmarks._baselines import MakePlanner
from benchmarks._measured import family
from sizewright.models import ThroughputModel
from sizewright.models.default.parameter_prior import Normals, ParameterPrior
from sizewright.models.factory import make_predictor
from sizewright.profiler.planner.measured_table import MeasuredTable
from sizewright.profiler.planner.objective import SHORTFALL_WEIGHT
from sizewright.profiler.planner.trial_planner import TrialPlanner

PARAMETERS = Path(__file__).parent / "parameters"
FAMILIES = ("own", "trimtuner", "gavel", "bank")


def learned_family(table: MeasuredTable) -> str:
    """Return the family that a table was made of; low-noise tables are made of TrimTuner's."""
    name = family(table)
    return "trimtuner" if name == "low-noise" else name


@cache
def normals_without(family: str) -> Normals:
    """Return the prior of parameters that was learned without a family. Raises StoreError where none is kept."""
    return ParameterPrior.load(PARAMETERS / f"without-{family}.json").normals


def left_out(table: MeasuredTable) -> Callable[[], ThroughputModel]:
    """Return a factory of the default model with the prior that was learned without the table's family."""
    return partial(ThroughputModel, normals_without(learned_family(table)))


def left_out_planner(table: MeasuredTable, shortfall_weight: float = SHORTFALL_WEIGHT) -> MakePlanner:
    """Return a factory of this package's planner with that model."""
    normals = normals_without(learned_family(table))

    def make(candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> TrialPlanner:
        return TrialPlanner(
            candidates,
            objective,
            seed=seed,
            max_trials=trials,
            predictor=make_predictor(parameter_priors=normals, min_allocations=1, seed=seed),
            shortfall_weight=shortfall_weight,
        )

    return make
