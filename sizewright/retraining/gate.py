"""The gate of promotion: a challenger must be better on the held-out jobs, and worse on no family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.retraining.evaluation import JobScore, by_family, summary
from sizewright.spec.reason import Reason
from sizewright.spec.wording import sentences

_DRAWS = 1000
_QUANTILE = 0.1  # of the draws: 90 % of them are above


@dataclass(frozen=True)
class GateLimits:
    """The share by which the error must fall, and the share by which that of a family may rise.

    Raises InputError for shares outside their ranges.
    """

    margin: float = 0.02
    worst_family: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 1 or not 0 <= self.worst_family < math.inf:
            raise InputError(
                f"margin must lie between 0 and 1, and worst_family must be 0 or more; got {self.margin} and "
                f"{self.worst_family}.",
                "Give shares such as 0.02 and 0.05.",
            )


class GateResult(NamedTuple):
    """The decision to promote or not, and its reasons."""

    promote: bool
    reasons: tuple[Reason, ...]

    @property
    def reason(self) -> str:
        """Return the reasons as a text."""
        return sentences(self.reasons)


def judge(
    challenger: Sequence[JobScore],
    champion: Sequence[JobScore],
    limits: GateLimits,
    noise_sd: float = 0.0,
    rival: str = "the champion",
) -> GateResult:
    """Judge a challenger by MLflow's validation of two evaluation results.

    Both must be scored on the same jobs, in the same order. Errors are means over jobs of their median errors. The
    error of a family counts by its lower confidence limit: with few jobs, each measured with an error of `noise_sd`
    (of logarithms), chance alone makes a family a tenth better or worse.
    """
    from mlflow import validate_evaluation_results
    from mlflow.models import EvaluationResult, MetricThreshold
    from mlflow.models.evaluation.validation import ModelValidationFailedException

    new, old = summary(challenger)["job_mdape"], summary(champion)["job_mdape"]
    if not (math.isfinite(new) and math.isfinite(old)):
        return GateResult(False, (Reason.of("no_held_out_jobs"),))
    worse = _family_ratios(challenger, champion, noise_sd)
    thresholds = {"error": MetricThreshold(min_relative_change=float(limits.margin), greater_is_better=False)}
    max_ratio = 1 + limits.worst_family
    thresholds |= {name: MetricThreshold(threshold=max_ratio, greater_is_better=False) for name in worse}
    errors: dict[str, float | str] = {
        "error": float(new),
        "jobs": len(challenger),
        "rival": rival,
        "rival_error": float(old),
    }
    try:
        validate_evaluation_results(
            thresholds, EvaluationResult({"error": new} | worse, {}), EvaluationResult({"error": old} | worse, {})
        )
    except ModelValidationFailedException:
        too_bad = {f"family_{name}": ratio for name, ratio in worse.items() if ratio > max_ratio}
        not_better = Reason.of(
            "not_better", margin=limits.margin, worst_family=limits.worst_family, **errors, **too_bad
        )
        return GateResult(False, (not_better,))
    return GateResult(True, (Reason.of("better", **errors),))


def _family_ratios(challenger: Sequence[JobScore], champion: Sequence[JobScore], noise_sd: float) -> dict[str, float]:
    """Return for each family the ratio of the challenger's error to the champion's that 90 % of draws exceed.

    Draws are of the jobs of the family, and of the measurement error of each.
    """
    rng = np.random.default_rng(0)
    ratios = {}
    for family in by_family(champion):
        pairs = [(new, old) for new, old in zip(challenger, champion, strict=True) if old.family == family]
        measurement_factors = np.exp(noise_sd * rng.standard_normal((len(pairs), _DRAWS)))
        errors = np.array(
            [
                [_errors(challenger_score, factors), _errors(champion_score, factors)]
                for (challenger_score, champion_score), factors in zip(pairs, measurement_factors, strict=True)
            ]
        )
        sampled = rng.integers(len(pairs), size=(len(pairs), _DRAWS))
        new, old = errors[sampled, :, np.arange(_DRAWS)].mean(axis=0).T
        ratios[family] = float(np.quantile(new / np.maximum(old, 1e-9), _QUANTILE))
    return ratios


def _errors(score: JobScore, factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median errors (d,) if all measurements were faster by `factors` (d,)."""
    return np.asarray(np.median(np.abs(np.array(score.ratios)[:, None] / factors - 1), axis=0))
