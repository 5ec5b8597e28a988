"""Tables of measured trials: 15 allocations of workers and PS, whose throughput follows a formula, with noise."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from sizewright.profiler.planner.measured_table import MeasuredTable, one_table


def trial_table(noise: float = 0.0, repeats: int = 1, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    axes = itertools.product((1, 2, 3, 5, 7), (1, 2, 3), range(repeats))
    rows = [(w, p, 1000 * w / (1 + 0.1 * w * w / p) * rng.lognormal(0, noise)) for w, p, _ in axes]
    return pd.DataFrame(rows, columns=["workers", "ps", "throughput"])


def measured_table(noise: float = 0.0, repeats: int = 1) -> MeasuredTable:
    return one_table(trial_table(noise, repeats), "made")
