"""Fifteen days of Microsoft's Philly trace (Jeon et al., ATC 2019).

The trace is read from `$SIZEWRIGHT_SHARED/data/philly` and not copied. The benchmark uses days 55 to 70, on which
nothing was tuned. Durations are cut at five days, because a few jobs of several weeks would dominate all others.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from sizewright.datasets.traces import Trace, read_trace

DAYS = (55.0, 70.0)
DAY_S = 86400.0
LONGEST_S = 5 * DAY_S


@cache
def philly() -> Trace:
    path = Path(os.environ.get("SIZEWRIGHT_SHARED", "shared")) / "data" / "philly" / "philly.csv.gz"
    if not path.is_file():
        sys.exit(f"No trace at {path}: set SIZEWRIGHT_SHARED to the folder that holds data/philly.")
    part = read_trace(path).between(DAYS[0] * DAY_S, DAYS[1] * DAY_S)
    return replace(part, duration_s=np.minimum(part.duration_s, LONGEST_S))
