"""Whether a job's speed has changed for good: then what was measured before tells of another time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial

LEAST_AFTER = 8
"""So many trials or runs make a new usual, as many as drift needs."""
_LEAST_SHIFT, _SURE_SDS, _LEAST_SD = 0.05, 5.0, 0.03
_MAD_TO_SD, _MOST, _MOST_PLACES = 1.4826, 0.75, 500


class _Split(NamedTuple):
    at: int
    sure: float


def since_last_shift(trials: Sequence[Trial]) -> list[Trial]:
    """Those of one job after the last moment at which it got faster or slower for good, in order of time.

    Trials of one allocation are compared with one another, so that what differs between allocations is no shift. It is
    one where medians are five standard errors apart, and most of the first and last eight since then by a twentieth.
    """
    told = sorted(trials, key=lambda t: t.started_at.timestamp() if t.started_at else -np.inf)
    left = _beside_the_same_place(told)
    first = 0
    while (split := _split(left[first:])) is not None:
        first += split.at
    return told[first:]


def _beside_the_same_place(trials: Sequence[Trial]) -> NDArray[np.float64]:
    """Logarithm of each throughput (n,) over the median of its allocation."""
    places = [(t.workers, t.ps, t.worker_cpu, t.ps_cpu, t.batch_size, t.sync, t.table_scale) for t in trials]
    logs = np.log([t.throughput or np.nan for t in trials])
    usual = {place: float(np.median([log for log, p in zip(logs, places, strict=True) if p == place]))
             for place in set(places)}  # fmt: skip
    return np.asarray(logs - np.array([usual[place] for place in places]))


def _split(left: NDArray[np.float64]) -> _Split | None:
    last = len(left) - LEAST_AFTER
    places = range(last % max(1, last // _MOST_PLACES), last + 1, max(1, last // _MOST_PLACES))
    found = [_Split(at, _sure(left[:at], left[at:])) for at in places if at > 0]
    best = max(found, key=lambda split: split.sure, default=None)
    return best if best and best.sure > _SURE_SDS else None


def _sure(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """How many standard errors the medians are apart; 0 where most of the first or of the last are not beyond."""
    apart = float(np.median(after) - np.median(before))
    beyond = (after - np.median(before)) * np.sign(apart)
    most = min(float(np.quantile(end, 1 - _MOST)) for end in (beyond[:LEAST_AFTER], beyond[-LEAST_AFTER:]))
    if len(before) < LEAST_AFTER or most < max(_LEAST_SHIFT, abs(apart) / 3):
        return 0.0
    sd = max(_MAD_TO_SD * float(np.median(np.abs(np.concatenate([_centred(before), _centred(after)])))), _LEAST_SD)
    return abs(apart) / (sd * float(np.sqrt(1 / len(before) + 1 / len(after))))


def _centred(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values - np.median(values)
