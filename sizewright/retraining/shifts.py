"""Lasting changes of a job's speed: trials from before such a change are out of date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial

MIN_TRIALS = 8
"""Number of trials or runs that establish a new speed; drift needs as many."""
_MIN_SHIFT = 0.05
_THRESHOLD_SE = 5.0
_MIN_SD = 0.03
_MAD_TO_SD = 1.4826
_MAJORITY = 0.75
_MAX_SPLITS = 500


class _Split(NamedTuple):
    at: int
    standard_errors: float


def since_last_shift(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials of one job after its last lasting change of speed, in order of time.

    Trials are compared with those of the same allocation, so differences between allocations are no change. Speed
    has changed where the medians before and after differ by five standard errors, and most of the first and of the
    last eight trials since then by a twentieth.
    """
    ordered = sorted(trials, key=lambda t: t.started_at.timestamp() if t.started_at else -np.inf)
    residuals = _relative_to_allocation(ordered)
    first = 0
    while (split := _find_split(residuals[first:])) is not None:
        first += split.at
    return ordered[first:]


def _relative_to_allocation(trials: Sequence[Trial]) -> NDArray[np.float64]:
    """Return the logarithm of each throughput (n,) over the median of its allocation."""
    allocations = [(t.workers, t.ps, t.worker_cpu, t.ps_cpu, t.batch_size, t.sync, t.table_scale) for t in trials]
    logs = np.log([t.throughput or np.nan for t in trials])
    by_allocation: dict[tuple[object, ...], list[float]] = {}
    for allocation, log in zip(allocations, logs, strict=True):
        by_allocation.setdefault(allocation, []).append(log)
    medians = {allocation: float(np.median(values)) for allocation, values in by_allocation.items()}
    return np.asarray(logs - np.array([medians[allocation] for allocation in allocations]))


def _find_split(residuals: NDArray[np.float64]) -> _Split | None:
    """Return the most significant change, or None where no change is significant."""
    last = len(residuals) - MIN_TRIALS
    step = max(1, last // _MAX_SPLITS)
    candidates = range(last % step, last + 1, step)
    splits = [_Split(at, _difference(residuals[:at], residuals[at:])) for at in candidates if at > 0]
    best = max(splits, key=lambda split: split.standard_errors, default=None)
    return best if best and best.standard_errors > _THRESHOLD_SE else None


def _difference(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return the difference of the medians in standard errors.

    It is 0 unless most of the first and most of the last trials after the change differ from the median before it.
    """
    difference = float(np.median(after) - np.median(before))
    shifts = (after - np.median(before)) * np.sign(difference)
    ends = (shifts[:MIN_TRIALS], shifts[-MIN_TRIALS:])
    majority_shift = min(float(np.quantile(end, 1 - _MAJORITY)) for end in ends)
    if len(before) < MIN_TRIALS or majority_shift < max(_MIN_SHIFT, abs(difference) / 3):
        return 0.0
    deviations = np.concatenate([before - np.median(before), after - np.median(after)])
    sd = max(_MAD_TO_SD * float(np.median(np.abs(deviations))), _MIN_SD)
    return abs(difference) / (sd * float(np.sqrt(1 / len(before) + 1 / len(after))))
