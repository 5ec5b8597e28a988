"""Check a job's trials against each other, and against the prediction of a learned prior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.models.axes import COUNTS, SIZES
from sizewright.models.prior import JobCurve
from sizewright.models.prior.plausible_range import MAX_LOG_OFFSET, plausible_range
from sizewright.spec.reason import Reason
from sizewright.spec.wording import AXIS_WORDS

_MAX_REPEAT_RATIO = 1.5
"""Repeats of one allocation differ by a few per cent on one host; beyond this factor they contradict each other."""


class PriorCheck(NamedTuple):
    """Which trials (n,) are believed, why the others are not, and why the prior is not, if it is rejected."""

    believed: NDArray[np.bool_]
    doubts: tuple[Reason, ...] = ()
    against_prior: Reason | None = None


def check_prior(trials: Sequence[Trial], curve: JobCurve) -> PriorCheck:
    """Compare trials, which have their cores and batch size, with the curve that a prior predicts."""
    if not trials:
        return PriorCheck(np.ones(0, bool))
    rates = np.array([trial.throughput or np.nan for trial in trials])
    residuals = np.log(rates) - curve.log_rates(trials)
    median, limit = plausible_range(residuals, len(trials))
    if abs(median) > MAX_LOG_OFFSET:
        reason = Reason.of("prior_ignored", trials=len(trials), ratio=float(np.exp(median)))
        return PriorCheck(np.ones(len(trials), bool), against_prior=reason)
    outliers = np.abs(residuals - median) > np.maximum(limit, 4 * curve.sd(trials))
    return PriorCheck(
        ~outliers, tuple(_doubt(trials[i], float(residuals[i])) for i in np.flatnonzero(outliers).tolist())
    )


def _doubt(trial: Trial, residual: float) -> Reason:
    return Reason.of(
        "trial_ignored",
        throughput=trial.throughput,
        workers=trial.workers,
        ps=trial.ps,
        ratio=float(np.exp(residual)),
    )


def contradictions(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a phrase for each allocation whose repeated trials contradict each other."""
    axes = (*COUNTS, *SIZES)
    repeats: dict[tuple[object, ...], list[float]] = {}
    for trial in trials:
        repeats.setdefault(tuple(getattr(trial, axis) for axis in axes), []).append(trial.throughput or 0.0)
    for allocation, rates in repeats.items():
        if max(rates) > _MAX_REPEAT_RATIO * min(rates):
            named = ", ".join(
                f"{AXIS_WORDS[axis]} {value}" for axis, value in zip(axes, allocation, strict=True) if value is not None
            )
            yield f"({named}) measured {' and '.join(f'{rate:,.0f}' for rate in sorted(rates))} samples/s"
