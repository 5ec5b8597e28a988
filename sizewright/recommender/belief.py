"""Whether a job's trials agree with each other, and with what was foretold of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.models.axes import COUNTS, SIZES
from sizewright.models.prior import JobCurve
from sizewright.recommender.caps import AXIS_WORDS
from sizewright.spec.units import format_count

# No host is so many times as fast as another, and no trial so far from the others of its job.
_UNSOUND_LEVEL, _UNSOUND_TRIAL = np.log(20.0), np.log(4.0)
_MANY = 3
"""So many trials that agree are believed more than a prior."""

_REPEATS_DIFFER = 1.5
"""Repeats of one allocation differ by a few per cent on one host; beyond this factor they contradict each other."""


class Belief(NamedTuple):
    """Which trials (n,) are believed, why the others are not, and why the prior is not, if it is not."""

    believed: NDArray[np.bool_]
    doubts: tuple[str, ...] = ()
    against_prior: str = ""


def weigh(trials: Sequence[Trial], foretold: JobCurve) -> Belief:
    """Trials that tell their cores and batch size, against a curve."""
    if not trials:
        return Belief(np.ones(0, bool))
    rates = np.array([trial.throughput or np.nan for trial in trials])
    gaps = np.log(rates) - foretold.log_rates(trials)
    centre = float(np.median(gaps)) if len(gaps) >= _MANY else 0.0
    if abs(centre) > _UNSOUND_LEVEL:
        told = f"the job's {format_count(len(trials), 'trial')} went {_times(centre)} what it foretells"
        return Belief(np.ones(len(trials), bool), against_prior=f"The prior is left out: {told}")
    limit = _UNSOUND_TRIAL if len(gaps) >= _MANY else _UNSOUND_LEVEL
    far = np.abs(gaps - centre) > np.maximum(limit, 4 * foretold.sd(trials))
    return Belief(~far, tuple(_doubt(trials[i], float(gaps[i])) for i in map(int, np.flatnonzero(far))))


def _doubt(trial: Trial, gap: float) -> str:
    return (
        f"A trial with {trial.throughput:,.0f} samples/s at {format_count(trial.workers, 'worker')} and {trial.ps} PS "
        f"is left out: that is {_times(gap)} what other jobs foretell. Measure it again."
    )


def _times(log: float) -> str:
    factor = np.exp(abs(log))
    return f"{factor:,.0f} times" if log > 0 else f"1/{factor:,.0f} of"


def contradictions(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a phrase for each allocation whose repeated trials contradict each other."""
    axes = (*COUNTS, *SIZES)
    repeats: dict[tuple[object, ...], list[float]] = {}
    for trial in trials:
        repeats.setdefault(tuple(getattr(trial, axis) for axis in axes), []).append(trial.throughput or 0.0)
    for place, rates in repeats.items():
        if max(rates) > _REPEATS_DIFFER * min(rates):
            named = ", ".join(
                f"{AXIS_WORDS[axis]} {value}" for axis, value in zip(axes, place, strict=True) if value is not None
            )
            yield f"({named}) measured {' and '.join(f'{rate:,.0f}' for rate in sorted(rates))} samples/s"
