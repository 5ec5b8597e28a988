"""Trials that contradict the others: mistyped, in other units, or of another program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trial_bank.noise import STEADY_SE, is_steady
from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import format_count, format_percent
from sizewright.models.prior import mechanistic
from sizewright.models.prior.plausible_range import MAX_LOG_DEVIATION, MAX_LOG_OFFSET
from sizewright.models.prior.rows import PriorRows, fit_rows, ps_use_is_plausible, worker_use_is_plausible

Floats = NDArray[np.float64]

# Limits of log ratios: of an axis to the median of the job's other trials, and of a job's median residual to that of
# all jobs.
_UNIT_LIMIT, _JOB_LIMIT = np.log(100.0), MAX_LOG_OFFSET
# Of a trial's residual to the median of its job: wide at first, while outliers may bend the fit, then without these.
_TRIAL_LIMITS = (MAX_LOG_DEVIATION, np.log(2.5))


class CleanTrials(NamedTuple):
    """Rows that do not contradict one another, the parameters fitted to them, and why other rows were left out."""

    rows: PriorRows
    parameters: Floats
    flagged: tuple[str, ...]


class _Outliers(NamedTuple):
    """Rows (n,) that are outliers, and a sentence for each, or for each job."""

    rows: NDArray[np.bool_]
    reasons: list[str]


def drop_outliers(rows: PriorRows, names: Sequence[str]) -> CleanTrials:
    """Leave out rows that contradict the others; `names` are those of the jobs."""
    outliers = _in_other_units(rows, names)
    flagged = outliers.reasons
    rows = rows.pick(~outliers.rows)
    parameters = fit_rows(rows)
    for limit in _TRIAL_LIMITS:
        outliers = _contradicting(rows, parameters, names, limit)
        flagged += outliers.reasons
        if outliers.rows.any():
            rows = rows.pick(~outliers.rows)
            parameters = fit_rows(rows, parameters)
    return CleanTrials(rows, parameters, tuple(flagged))


def implausible_cpu_use(trials: Sequence[Trial]) -> list[str]:
    """Return a warning where trials claim to have used more CPU than their cores."""
    usable = [trial for trial in trials if trial.usable]
    count = sum(not (worker_use_is_plausible(trial) and ps_use_is_plausible(trial)) for trial in usable)
    if not count:
        return []
    return [
        f"CPU use of {format_count(count, 'trial')} is not used, since it is more than their cores "
        "(their throughput is used)"
    ]


def unsteady(trials: Sequence[Trial]) -> list[str]:
    """Return a warning where the throughput of trials was not steady while it was measured."""
    count = sum(trial.usable and not is_steady(trial) for trial in trials)
    if not count:
        return []
    return [f"{format_count(count, 'trial')} that varied by a standard error of more than {format_percent(STEADY_SE)}"]


def _in_other_units(rows: PriorRows, names: Sequence[str]) -> _Outliers:
    """Return rows with an axis that is far from the median of their job."""
    axes = {
        "worker_cpu": rows.configs.worker_cpu,
        "ps_cpu": rows.configs.ps_cpu,
        "batch_size": rows.configs.work.samples,
    }
    outliers = _Outliers(np.zeros(len(rows.job), bool), [])
    for axis, column in axes.items():
        for number in np.unique(rows.job):
            of_job = np.flatnonzero(rows.job == number)
            median = float(np.median(column[of_job]))
            for row in of_job[np.abs(np.log(column[of_job] / median)) > _UNIT_LIMIT]:
                outliers.rows[row] = True
                outliers.reasons.append(
                    f"{_trial_name(rows, row, names)}: {axis} is {column[row]:g}, the median of its job is {median:g}"
                )
    return outliers


def _contradicting(rows: PriorRows, parameters: Floats, names: Sequence[str], limit: float) -> _Outliers:
    """Return rows that are far from the curve of their job, and those of jobs that are far from all others."""
    residuals = rows.observations.log_rates - mechanistic.log_rates(parameters, rows.configs)
    job_medians = {number: float(np.median(residuals[rows.job == number])) for number in np.unique(rows.job)}
    overall = float(np.median(list(job_medians.values())))
    outliers = _Outliers(np.zeros(len(residuals), bool), [])
    for number, median in job_medians.items():
        of_job = np.flatnonzero(rows.job == number)
        if abs(median - overall) > _JOB_LIMIT:
            outliers.rows[of_job] = True
            ratio = _times(median - overall)
            outliers.reasons.append(f"{names[number]}: all {len(of_job)} trials are {ratio} the other jobs predict")
            continue
        for row in of_job[np.abs(residuals[of_job] - median) > limit]:
            outliers.rows[row] = True
            rate, ratio = np.exp(rows.observations.log_rates[row]), _times(residuals[row] - median)
            outliers.reasons.append(
                f"{_trial_name(rows, row, names)}: {rate:,.0f} samples/s are {ratio} its other trials predict"
            )
    return outliers


def _trial_name(rows: PriorRows, row: int, names: Sequence[str]) -> str:
    return f"{names[rows.job[row]]}, trial {rows.trial[row] + 1}"


def _times(log_ratio: float) -> str:
    factor = np.exp(abs(log_ratio))
    return f"{factor:,.1f} times what" if log_ratio > 0 else f"1/{factor:,.1f} of what"
