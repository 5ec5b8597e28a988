"""Trials that contradict the others: mistyped, in other units, or of another program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.models.prior import physics
from sizewright.models.prior.rows import Rows, fitted, ps_told, worker_told
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]

# How far, in log: an axis from what the other trials of its job have; a job from all others; and a trial from what
# the others of its job foretell, first while wrong ones may have bent that, then without those.
_OTHER_UNIT, _OTHER_JOB, _OTHER_TRIALS = np.log(100.0), np.log(20.0), (np.log(4.0), np.log(2.5))


class Sound(NamedTuple):
    """Rows that do not contradict one another, what they tell, and why the rest was left out."""

    rows: Rows
    parameters: Floats
    flagged: tuple[str, ...]


def sound(rows: Rows, names: Sequence[str]) -> Sound:
    """Leave out what cannot be; `names` are those of the jobs."""
    told, flagged = _in_other_units(rows, names)
    rows = rows.pick(~told)
    parameters = fitted(rows)
    for limit in _OTHER_TRIALS:
        wrong, why = _contradicted(rows, parameters, names, limit)
        flagged += why
        if wrong.any():
            rows = rows.pick(~wrong)
            parameters = fitted(rows, parameters)
    return Sound(rows, parameters, tuple(flagged))


def beyond_quota(trials: Sequence[Trial]) -> list[str]:
    """What to say of trials whose CPU use cannot be."""
    wrong = sum(not (worker_told(t) and ps_told(t)) for t in trials if t.usable)
    return (
        [f"CPU use of {format_count(wrong, 'trial')}: it is more than their cores (the trials themselves stay)"]
        if wrong
        else []
    )


def _in_other_units(rows: Rows, names: Sequence[str]) -> tuple[NDArray[np.bool_], list[str]]:
    axes = {"worker_cpu": rows.at.worker_cpu, "ps_cpu": rows.at.ps_cpu, "batch_size": rows.at.work.samples}
    wrong, flagged = np.zeros(len(rows.job), bool), []
    for axis, column in axes.items():
        for number in np.unique(rows.job):
            mine = np.flatnonzero(rows.job == number)
            usual = float(np.median(column[mine]))
            for row in mine[np.abs(np.log(column[mine] / usual)) > _OTHER_UNIT]:
                wrong[row] = True
                flagged.append(f"{_name(rows, row, names)}: {axis} {column[row]:g}, where others have {usual:g}")
    return wrong, flagged


def _contradicted(
    rows: Rows, parameters: Floats, names: Sequence[str], limit: float
) -> tuple[NDArray[np.bool_], list[str]]:
    left = rows.told.log_rates - physics.log_rates(parameters, rows.at)
    middle = {number: float(np.median(left[rows.job == number])) for number in np.unique(rows.job)}
    usual = float(np.median(list(middle.values())))
    wrong, flagged = np.zeros(len(left), bool), []
    for number, level in middle.items():
        mine = np.flatnonzero(rows.job == number)
        if abs(level - usual) > _OTHER_JOB:
            wrong[mine] = True
            far = _times(level - usual)
            flagged.append(f"{names[number]}: all {len(mine)} trials are {far} the other jobs foretell")
            continue
        for row in mine[np.abs(left[mine] - level) > limit]:
            wrong[row] = True
            rate, far = np.exp(rows.told.log_rates[row]), _times(left[row] - level)
            flagged.append(f"{_name(rows, row, names)}: {rate:,.0f} samples/s are {far} its other trials foretell")
    return wrong, flagged


def _name(rows: Rows, row: int, names: Sequence[str]) -> str:
    return f"{names[rows.job[row]]}, trial {rows.trial[row] + 1}"


def _times(log: float) -> str:
    factor = np.exp(abs(log))
    return f"{factor:,.1f} times what" if log > 0 else f"1/{factor:,.1f} of what"
