"""Whether runs go as their plans foretold: what a 90 % interval misses too often is drift."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from sizewright.datasets.finished import LEAST_STRETCH_S, FinishedJob
from sizewright.spec import Estimate
from sizewright.spec._base import Record
from sizewright.spec.units import format_count

LEAST_RUNS, MOST_RUNS = 8, 50
_MISSED, _CHANCE = 0.1, 0.01


class Drift(Record):
    """What the latest runs tell of what had been foretold."""

    drifted: bool
    reason: str
    runs: int
    missed: int = 0
    """Runs outside of the 90 % interval of their plan."""
    median_error: float | None = None
    """Of actual over foretold, as a share."""
    bias: float | None = None
    """Median of actual over foretold, less 1."""


def drift(runs: Sequence[FinishedJob], foretold_by: str = "") -> Drift:
    """Of the last 50 runs whose expectation names `foretold_by`.

    A model has drifted when its 90 % intervals missed so many that chance would do so in less than one of a hundred
    cases. Runs that memory ended, and those that trained less than 30 s at one allocation, tell nothing.
    """
    from scipy.stats import binom

    told = [run for run in runs if _tells(run) and re.search(rf"{re.escape(foretold_by)}(?!\d)", run.expected_by)]
    told = sorted(told, key=lambda run: run.started_at.timestamp() if run.started_at else -math.inf)[-MOST_RUNS:]
    if len(told) < LEAST_RUNS:
        needed = f"and {LEAST_RUNS} of {LEAST_STRETCH_S:.0f} s or longer at one allocation are needed"
        return Drift(drifted=False, runs=len(told), reason=f"{format_count(len(told), 'run')} told of it, {needed}.")
    missed = sum(not e.lower <= rate <= e.upper for e, rate in map(_pair, told))
    ratios = np.array([rate / e.value for e, rate in map(_pair, told)])
    drifted = bool(binom.sf(missed - 1, len(told), _MISSED) < _CHANCE)
    error = float(np.median(np.abs(ratios - 1)))
    return Drift(
        drifted=drifted,
        runs=len(told),
        missed=missed,
        median_error=error,
        bias=float(np.median(ratios) - 1),
        reason=(
            f"The 90 % intervals missed {missed} of the last {len(told)} runs"
            f"{', more than chance allows' if drifted else ''}; the median error is {error:.0%}."
        ),
    )


def _tells(run: FinishedJob) -> bool:
    if run.expected is None or run.throughput is None or run.ran_out_of_memory or run.outcome.status == "running":
        return False
    return any(s.throughput == run.throughput and s.tells_speed for s in run.stretches)


def _pair(run: FinishedJob) -> tuple[Estimate, float]:
    assert run.expected is not None
    assert run.throughput is not None
    return run.expected, run.throughput
