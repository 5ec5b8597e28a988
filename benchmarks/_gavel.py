"""Gavel's measurements of GPU training as trial tables: workers × batch size, without PS (MIT licence).

The data is read from `$SIZEWRIGHT_SHARED/data/gavel` and not copied. Steps/s are summed over the workers, so that
samples/s = steps/s × batch. There is one table for each family and kind of GPU. Runs with 0 steps/s ran out of memory.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from sizewright.profiler.planner.measured_table import MeasuredTable, one_table

GPUS = ("k80", "v100")
KINDS = ("k80", "p100", "v100")
FAMILIES = ("ResNet-18", "Transformer", "LM")
_FAMILY = re.compile(r"\('(.+)', (\d+)\)")
_NAME = re.compile(r"\('(?P<family>.+) \(batch size (?P<batch>\d+)\)', (?P<workers>\d+)\)")


def gavel() -> list[MeasuredTable]:
    """Return six tables of 20 allocations, or none if the data is missing."""
    measured = _measured()
    if not measured:
        return []
    return [one_table(_trials(measured[gpu], family), f"gavel-{gpu}-{family}") for gpu in GPUS for family in FAMILIES]


@cache
def throughputs() -> dict[str, dict[tuple[str, int], float]]:
    """Return steps/s by family with its batch size, then by kind of GPU and number of GPUs; empty without the data.

    Families that do not run on one V100 are left out.
    """
    found: dict[str, dict[tuple[str, int], float]] = {}
    for kind in KINDS:
        for name, steps in _measured().get(kind, {}).items():
            family, workers = _FAMILY.fullmatch(name).groups()  # type: ignore[union-attr]
            found.setdefault(family, {})[kind, int(workers)] = steps["null"]
    return {family: speeds for family, speeds in found.items() if speeds.get(("v100", 1), 0.0) > 0}


@cache
def _measured() -> dict[str, Any]:
    path = Path(os.environ.get("SIZEWRIGHT_SHARED", "shared")) / "data" / "gavel" / "simulation_throughputs.json.gz"
    if not path.exists():
        return {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return dict(json.load(file))


def _trials(steps_per_s: dict[str, dict[str, float]], family: str) -> pd.DataFrame:
    rows = []
    for name, steps in steps_per_s.items():
        match = _NAME.fullmatch(name)
        if match and match["family"] == family:
            workers, batch = int(match["workers"]), int(match["batch"])
            rows.append({"workers": workers, "batch_size": batch, "throughput": steps["null"] * batch})
    return pd.DataFrame(rows).assign(ps=0, worker_gpu=1, sync="sync")
