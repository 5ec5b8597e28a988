"""How far trials of a bank repeat, and whether the host's speed tells it.

The speed that a session's trials saw on average stands for the host's: a single probe of it tells little.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial

Floats = NDArray[np.float64]

_MOST_EXPONENT = 2.0
_LEAST_PAIRS = 8
_UNSOUND = np.log(4.0)
"""Trials of one allocation that are so far apart do not tell of noise: one of them is wrong."""


class RepeatNoise(NamedTuple):
    """Of allocations that were measured in two sessions: standard deviations of one trial, in logarithms."""

    pairs: int
    raw: float
    exponent: float
    """β of throughput / speed^β; 0 where it does not lower the deviation."""
    at_usual_speed: float


def repeat_noise(trials: Sequence[Trial]) -> RepeatNoise:
    """NaN where nothing was measured twice."""
    speed, rate, job = _pairs(trials, session_speeds(trials))
    if not len(rate):
        return RepeatNoise(0, float("nan"), 0.0, float("nan"))
    exponent = _exponent(speed, rate, job)
    return RepeatNoise(len(rate), _of_one(rate), exponent, _of_one(rate - exponent * speed))


def usual_speed_factors(trials: Sequence[Trial], exponent: float) -> Floats:
    """By what the throughput of each trial (n,) is to be multiplied to be that at the usual speed of the host."""
    speeds = session_speeds(trials)
    usual = np.median(list(speeds.values())) if speeds else 1.0
    return np.array([(usual / speeds.get(trial.series, usual)) ** exponent for trial in trials])


def session_speeds(trials: Sequence[Trial]) -> dict[str | None, float]:
    """Mean speed of the host in each series that tells it."""
    told = defaultdict(list)
    for trial in trials:
        if trial.host_speed:
            told[trial.series].append(trial.host_speed)
    return {series: float(np.mean(speeds)) for series, speeds in told.items()}


def _pairs(trials: Sequence[Trial], speeds: dict[str | None, float]) -> tuple[Floats, Floats, list[str | None]]:
    """Of each allocation's later trials against its first, in another series: log speed, log rate, and the job."""
    first: dict[object, Trial] = {}
    speed, rate, job = [], [], []
    for trial in trials:
        if not trial.usable:
            continue
        place = (
            trial.job_hash, trial.workers, trial.ps, trial.worker_cpu, trial.ps_cpu,
            trial.batch_size, trial.table_scale,
        )  # fmt: skip
        before = first.setdefault(place, trial)
        if before.series != trial.series:
            assert before.throughput is not None
            assert trial.throughput is not None
            apart = np.log(trial.throughput / before.throughput)
            if abs(apart) > _UNSOUND:
                continue
            rate.append(apart)
            speed.append(np.log(speeds.get(trial.series, 1.0) / speeds.get(before.series, 1.0)))
            job.append(trial.job_hash)
    return np.array(speed), np.array(rate), job


def _exponent(speed: Floats, rate: Floats, job: Sequence[str | None]) -> float:
    """By least squares, and 0 unless the pairs of each job are told better by that of the other jobs."""
    if len(rate) < _LEAST_PAIRS or not speed @ speed > 0:
        return 0.0
    left = rate.copy()
    for one in set(job):
        mine = np.array([other == one for other in job])
        left[mine] -= _slope(speed[~mine], rate[~mine]) * speed[mine]
    return _slope(speed, rate) if left @ left < rate @ rate else 0.0


def _slope(speed: Floats, rate: Floats) -> float:
    return float(np.clip(speed @ rate / max(float(speed @ speed), 1e-12), 0.0, _MOST_EXPONENT))


def _of_one(differences: Floats) -> float:
    return float(np.sqrt((differences**2).mean() / 2))
