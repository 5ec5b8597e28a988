"""TrimTuner's measurements of PS training as trial tables: workers × machine × batch × mode (MIT licence).

The data is read from `$SIZEWRIGHT_SHARED/data/trimtuner` and not copied. Runs under five seconds are mostly timing
error, and are left out with all runs on sets below 15,000 samples. The other sets of each allocation count as repeats,
although smaller sets run faster in some tables, by up to a fifth; this is part of the noise. Iterations are summed
over workers in both modes, so that samples/s = iterations/s × batch. Every machine size counts as whole cores, with one
PS on its own machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from sizewright.profiler.planner.measured_table import MeasuredTable, split_tables

CORES = {"t2.small": 1, "t2.medium": 2, "t2.xlarge": 4, "t2.2xlarge": 8}
_MIN_SET_SIZE, _MIN_RUN_S = 15_000, 5.0


def trimtuner() -> list[MeasuredTable]:
    """Return eight tables of up to 24 allocations each, or none if the data is missing."""
    folder = Path(os.environ.get("SIZEWRIGHT_SHARED", "shared")) / "data" / "trimtuner"
    tables = []
    for name in ("cnn", "rnn"):
        if (folder / f"{name}.csv").exists():
            tables += split_tables(_trials(folder / f"{name}.csv"), f"trimtuner-{name}")
    return tables


def _trials(path: Path) -> pd.DataFrame:
    runs = pd.read_csv(path)
    runs = runs[(runs.training_set_size >= _MIN_SET_SIZE) & (runs.training_time >= _MIN_RUN_S)]
    cores = runs.vm_flavor.map(CORES).astype(float)
    return pd.DataFrame(
        {
            "workers": runs.n_workers,
            "ps": runs.n_ps,
            "worker_cpu": cores,
            "ps_cpu": cores,
            "batch_size": runs.batch_size,
            "sync": runs.synchronism,
            "throughput": runs.total_iterations / runs.training_time * runs.batch_size,
        }
    ).reset_index(drop=True)
