"""Gavel's measurements of GPU training as trial tables: workers × batch size, without PS (MIT licence).

The data is read from `$SIZEWRIGHT_SHARED/data/gavel` and not copied. Steps/s are summed over the workers, so that
samples/s = steps/s × batch. There is one table for each family and kind of GPU. Runs with 0 steps/s ran out of memory.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import pandas as pd

from sizewright.profiler.planner.measured_table import MeasuredTable, one_table

GPUS = ("k80", "v100")
FAMILIES = ("ResNet-18", "Transformer", "LM")
_NAME = re.compile(r"\('(?P<family>.+) \(batch size (?P<batch>\d+)\)', (?P<workers>\d+)\)")


def gavel() -> list[MeasuredTable]:
    """Return six tables of 20 allocations, or none if the data is missing."""
    path = Path(os.environ.get("SIZEWRIGHT_SHARED", "shared")) / "data" / "gavel" / "simulation_throughputs.json.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        measured = json.load(file)
    return [one_table(_trials(measured[gpu], family), f"gavel-{gpu}-{family}") for gpu in GPUS for family in FAMILIES]


def _trials(steps_per_s: dict[str, dict[str, float]], family: str) -> pd.DataFrame:
    rows = []
    for name, steps in steps_per_s.items():
        match = _NAME.fullmatch(name)
        if match and match["family"] == family:
            workers, batch = int(match["workers"]), int(match["batch"])
            rows.append({"workers": workers, "batch_size": batch, "throughput": steps["null"] * batch})
    return pd.DataFrame(rows).assign(ps=0, worker_gpu=1, sync="sync")
