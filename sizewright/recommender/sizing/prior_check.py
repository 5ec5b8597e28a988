"""Check a job's trials against the prediction of a learned prior, and the prior against the trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.models.prior import JobCurve
from sizewright.models.prior.plausible_range import MAX_LOG_OFFSET, MIN_FOR_MEDIAN, plausible_range
from sizewright.spec.reason import Reason


class PriorCheck(NamedTuple):
    """The trials (n,) that are believed, why the others are not, and why the prior is not, if it is rejected."""

    believed: NDArray[np.bool_]
    trial_doubts: tuple[Reason, ...] = ()
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
    deviations = residuals - median
    outliers = np.abs(deviations) > np.maximum(limit, 4 * curve.sd(trials))
    compared = len(trials) if len(trials) >= MIN_FOR_MEDIAN else 0
    doubts = [_doubt(trials[i], float(deviations[i]), compared) for i in np.flatnonzero(outliers).tolist()]
    return PriorCheck(~outliers, tuple(doubts))


def _doubt(trial: Trial, deviation: float, compared: int) -> Reason:
    """Return why a trial is ignored that deviates from the prior, or from the median of `compared` trials and it."""
    return Reason.of(
        "trial_ignored",
        throughput=trial.throughput,
        workers=trial.workers,
        ps=trial.ps,
        ratio=float(np.exp(deviation)),
        compared_trials=compared or None,
    )
