"""Whether a challenger takes the champion's place: better on the same held-out jobs, and worse on no family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.retraining.evaluation import JobScore, by_family, summary

_DRAWS, _SURE = 1000, 0.1


@dataclass(frozen=True)
class Limits:
    """By what share the error must fall, and that of a family may rise. Raises InputError for what is no share."""

    margin: float = 0.02
    worst_family: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 1 or not 0 <= self.worst_family < math.inf:
            raise InputError(
                f"A margin of {self.margin} or a limit of {self.worst_family} is no share.",
                "Give a margin from 0 to 1, and from 0 up what a family may lose.",
            )


class Verdict(NamedTuple):
    """Whether to promote, and why or why not, in a sentence."""

    promote: bool
    reason: str


def judge(
    challenger: Sequence[JobScore],
    champion: Sequence[JobScore],
    limits: Limits,
    noise_sd: float = 0.0,
    rival: str = "the champion",
) -> Verdict:
    """By MLflow's validation of two evaluation results. Both have to be scored on the same jobs, in the same order.

    Errors are means over jobs of their median errors. A family counts as worse by as much as is sure: with few jobs of
    it, each measured as much too fast or too slow as `noise_sd` (of logarithms) tells, chance alone makes it a tenth
    better or worse.
    """
    from mlflow import validate_evaluation_results
    from mlflow.models import EvaluationResult, MetricThreshold
    from mlflow.models.evaluation.validation import ModelValidationFailedException

    new, old = summary(challenger)["job_mdape"], summary(champion)["job_mdape"]
    if not (math.isfinite(new) and math.isfinite(old)):
        return Verdict(False, "There are no held-out jobs to judge by.")
    worse = _surely_worse(challenger, champion, noise_sd)
    thresholds = {"error": MetricThreshold(min_relative_change=float(limits.margin), greater_is_better=False)}
    most = 1 + limits.worst_family
    thresholds |= {name: MetricThreshold(threshold=most, greater_is_better=False) for name in worse}
    told = f"median error {new:.3f} on {len(challenger)} held-out jobs, {rival}'s {old:.3f}"
    try:
        validate_evaluation_results(
            thresholds, EvaluationResult({"error": new} | worse, {}), EvaluationResult({"error": old} | worse, {})
        )
    except ModelValidationFailedException:
        faults = [f"surely {ratio:.2f} times as much in {name}" for name, ratio in worse.items() if ratio > most]
        why = f": {'; '.join(faults)}" if faults else ""
        return Verdict(
            False,
            f"Not better by {limits.margin:.0%} without a family worse by {limits.worst_family:.0%}: {told}{why}.",
        )
    return Verdict(True, f"Better: {told}.")


def _surely_worse(challenger: Sequence[JobScore], champion: Sequence[JobScore], noise_sd: float) -> dict[str, float]:
    """For each family the challenger's error over the champion's, which it exceeds in 90 % of draws of its jobs and of
    how far what was measured of each is off."""
    rng = np.random.default_rng(0)
    found = {}
    for family in by_family(champion):
        pairs = [(new, old) for new, old in zip(challenger, champion, strict=True) if old.family == family]
        off = np.exp(noise_sd * rng.standard_normal((len(pairs), _DRAWS)))
        errors = np.array([[_errors(score, off[i]) for score in pair] for i, pair in enumerate(pairs)])
        picked = rng.integers(len(pairs), size=(len(pairs), _DRAWS))
        new, old = errors[picked, :, np.arange(_DRAWS)].mean(axis=0).T
        found[family] = float(np.quantile(new / np.maximum(old, 1e-9), _SURE))
    return found


def _errors(score: JobScore, off: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median errors (d,) were all that was measured so many times (d,) as fast."""
    return np.asarray(np.median(np.abs(np.array(score.ratios)[:, None] / off - 1), axis=0))
