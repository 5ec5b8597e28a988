"""Drift: runs lie outside the 90 % intervals of their plans more often than chance allows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from sizewright.datasets.runs.finished_job import MIN_SEGMENT_S, FinishedJob
from sizewright.formatting import format_count, format_percent
from sizewright.spec import Estimate
from sizewright.spec._base import Record

MIN_RUNS, MAX_RUNS = 8, 50
_EXPECTED_MISSES = 0.1  # share of runs outside a 90 % interval
_SIGNIFICANCE = 0.01


class Drift(Record):
    """The latest runs, compared with their predictions."""

    drifted: bool
    reason: str
    runs: int
    missed: int = 0
    """Runs outside the 90 % interval of their plan."""
    median_error: float | None = None
    """Median relative error of the predictions."""
    bias: float | None = None
    """Median of measured over predicted throughput, minus 1."""


def drift(runs: Sequence[FinishedJob], predictor: str = "") -> Drift:
    """Return the drift of the last 50 runs that were predicted by `predictor`; empty means by any.

    A model has drifted when its 90 % intervals missed so many runs that chance has a probability below 1 %. Runs that
    ran out of memory, or that trained less than 30 s at one allocation, are ignored.
    """
    from scipy.stats import binom

    by_predictor = re.compile(rf"{re.escape(predictor)}(?!\d)")
    usable = [run for run in runs if _is_usable(run) and by_predictor.search(run.expected_by)]
    usable = sorted(usable, key=lambda run: run.started_at.timestamp() if run.started_at else -math.inf)[-MAX_RUNS:]
    if len(usable) < MIN_RUNS:
        reason = (
            f"Only {format_count(len(usable), 'run')} can be compared with a prediction; {MIN_RUNS} of "
            f"{MIN_SEGMENT_S:.0f} s or longer at one allocation are needed."
        )
        return Drift(drifted=False, runs=len(usable), reason=reason)
    pairs = [_expected_and_measured(run) for run in usable]
    missed = sum(not expected.lower <= rate <= expected.upper for expected, rate in pairs)
    ratios = np.array([rate / expected.value for expected, rate in pairs])
    drifted = bool(binom.sf(missed - 1, len(usable), _EXPECTED_MISSES) < _SIGNIFICANCE)
    error = float(np.median(np.abs(ratios - 1)))
    return Drift(
        drifted=drifted,
        runs=len(usable),
        missed=missed,
        median_error=error,
        bias=float(np.median(ratios) - 1),
        reason=(
            f"The 90 % intervals missed {missed} of the last {len(usable)} runs"
            f"{', more than chance allows' if drifted else ''}; the median error is {format_percent(error)}."
        ),
    )


def _is_usable(run: FinishedJob) -> bool:
    if run.expected is None or run.throughput is None or run.ran_out_of_memory or run.outcome.status == "running":
        return False
    return any(s.throughput == run.throughput and s.has_reliable_throughput for s in run.stretches)


def _expected_and_measured(run: FinishedJob) -> tuple[Estimate, float]:
    assert run.expected is not None
    assert run.throughput is not None
    return run.expected, run.throughput
