"""Measure the noise between repeated trials of a bank, and whether the host's speed explains it.

The mean of the probes over a session is taken as the speed of the host: a single probe is too noisy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial

Floats = NDArray[np.float64]

_MAX_EXPONENT = 2.0
_MIN_PAIRS = 8
_MAX_LOG_DIFFERENCE = np.log(4.0)
"""A larger difference between trials of one allocation is not noise: one of them is wrong."""


STEADY_SE = 0.12
"""Relative standard error above which a trial was not steady: in our bank such trials are 18 % slower than others."""


def is_steady(trial: Trial) -> bool:
    """Return whether the throughput of a trial was steady while it was measured, as far as the trial tells."""
    return (trial.throughput_se or 0.0) <= STEADY_SE * (trial.throughput or 0.0)


class RepeatNoise(NamedTuple):
    """Standard deviations of the log throughput of one trial, from allocations measured in two sessions."""

    pairs: int
    raw: float
    exponent: float
    """β of throughput / speed^β; 0 where it does not lower the deviation."""
    at_usual_speed: float


def repeat_noise(trials: Sequence[Trial]) -> RepeatNoise:
    """Return the noise between repeated trials; NaN where nothing was measured twice."""
    speed, rate, job = _pairs(trials, session_speeds(trials))
    if not len(rate):
        return RepeatNoise(0, float("nan"), 0.0, float("nan"))
    exponent = _exponent(speed, rate, job)
    return RepeatNoise(len(rate), _sd_of_one_trial(rate), exponent, _sd_of_one_trial(rate - exponent * speed))


def median_speed_factors(trials: Sequence[Trial], exponent: float) -> Floats:
    """Return the factors (n,) that scale the throughput of each trial to the median speed of the host."""
    speeds = session_speeds(trials)
    median_speed = np.median(list(speeds.values())) if speeds else 1.0
    return np.array([(median_speed / speeds.get(trial.series, median_speed)) ** exponent for trial in trials])


def session_speeds(trials: Sequence[Trial]) -> dict[str | None, float]:
    """Return the mean speed of the host in each series that recorded it."""
    speeds_by_series = defaultdict(list)
    for trial in trials:
        if trial.host_speed:
            speeds_by_series[trial.series].append(trial.host_speed)
    return {series: float(np.mean(speeds)) for series, speeds in speeds_by_series.items()}


def _pairs(trials: Sequence[Trial], speeds: dict[str | None, float]) -> tuple[Floats, Floats, list[str | None]]:
    """Compare each trial with the first one of its allocation where that is in another series.

    Return the log ratios of host speed and of throughput, and the jobs.
    """
    first: dict[object, Trial] = {}
    speed, rate, job = [], [], []
    for trial in trials:
        if not trial.usable:
            continue
        allocation = (
            trial.job_hash, trial.workers, trial.ps, trial.worker_cpu, trial.ps_cpu,
            trial.batch_size, trial.table_scale,
        )  # fmt: skip
        before = first.setdefault(allocation, trial)
        if before.series != trial.series:
            assert before.throughput is not None
            assert trial.throughput is not None
            log_ratio = np.log(trial.throughput / before.throughput)
            if abs(log_ratio) > _MAX_LOG_DIFFERENCE:
                continue
            rate.append(log_ratio)
            speed.append(np.log(speeds.get(trial.series, 1.0) / speeds.get(before.series, 1.0)))
            job.append(trial.job_hash)
    return np.array(speed), np.array(rate), job


def _exponent(speed: Floats, rate: Floats, job: Sequence[str | None]) -> float:
    """Fit β by least squares; it is 0 unless the fit to the other jobs predicts the pairs of each job better."""
    if len(rate) < _MIN_PAIRS or not speed @ speed > 0:
        return 0.0
    residuals = rate.copy()
    for one in set(job):
        of_this_job = np.array([other == one for other in job])
        residuals[of_this_job] -= _slope(speed[~of_this_job], rate[~of_this_job]) * speed[of_this_job]
    return _slope(speed, rate) if residuals @ residuals < rate @ rate else 0.0


def _slope(speed: Floats, rate: Floats) -> float:
    return float(np.clip(speed @ rate / max(float(speed @ speed), 1e-12), 0.0, _MAX_EXPONENT))


def _sd_of_one_trial(differences: Floats) -> float:
    return float(np.sqrt((differences**2).mean() / 2))
