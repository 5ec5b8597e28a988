"""Whether a challenger takes the champion's place: better on the same held-out jobs, and worse on no family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sizewright.retraining.evaluation import JobScore, by_family, summary


class Limits(NamedTuple):
    """By what share the median error must fall, and that of a family may rise."""

    margin: float = 0.02
    worst_family: float = 0.05


class Verdict(NamedTuple):
    """Whether to promote, and why or why not, in a sentence."""

    promote: bool
    reason: str


def judge(challenger: Sequence[JobScore], champion: Sequence[JobScore], limits: Limits) -> Verdict:
    """By MLflow's validation of two evaluation results. Both have to be scored on the same jobs."""
    from mlflow import validate_evaluation_results
    from mlflow.models import EvaluationResult, MetricThreshold
    from mlflow.models.evaluation.validation import ModelValidationFailedException

    new, old = errors_by_family(challenger), errors_by_family(champion)
    if not new or not all(map(math.isfinite, [*new.values(), *old.values()])):
        return Verdict(False, "There are no held-out jobs to judge by.")
    thresholds = {"mdape": MetricThreshold(min_relative_change=float(limits.margin), greater_is_better=False)}
    for family, error in old.items():
        if family != "mdape":
            thresholds[family] = MetricThreshold(threshold=error * (1 + limits.worst_family), greater_is_better=False)
    told = f"median error {new['mdape']:.3f} on {len(challenger)} held-out jobs, the champion's {old['mdape']:.3f}"
    try:
        validate_evaluation_results(thresholds, EvaluationResult(new, {}), EvaluationResult(old, {}))
    except ModelValidationFailedException as error:
        faults = " ".join(str(error.message).split())
        return Verdict(
            False,
            f"Not better by {limits.margin:.0%} without a family worse by {limits.worst_family:.0%}: {told}. {faults}",
        )
    return Verdict(True, f"Better: {told}.")


def errors_by_family(scores: Sequence[JobScore]) -> dict[str, float]:
    """The median error as `mdape`, and as `mdape_FAMILY` for each family."""
    if not scores:
        return {}
    families = {f"mdape_{family}": told["mdape"] for family, told in by_family(scores).items()}
    return {"mdape": summary(scores)["mdape"]} | families
