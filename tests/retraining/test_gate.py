from __future__ import annotations

import pytest

from sizewright.errors import InputError
from sizewright.retraining.evaluation import JobScore
from sizewright.retraining.gate import GateLimits, judge


def scores(**errors: float) -> list[JobScore]:
    """Return scores of one job for each family; every allocation is predicted too fast by the given error."""
    return [
        JobScore(f"{family}-job", family, family, (1 + error,) * 5, (1.0,) * 5, (1 + error,) * 5, 0.9, 0.0, 1.0)
        for family, error in errors.items()
    ]


def test_better_scores_are_promoted() -> None:
    verdict = judge(scores(dlrm=0.1, dcn=0.1), scores(dlrm=0.2, dcn=0.2), GateLimits())
    assert verdict.promote
    assert "0.100" in verdict.reason
    assert "0.200" in verdict.reason


def test_equal_scores_are_not_promoted() -> None:
    equal = scores(dlrm=0.1, dcn=0.1)
    assert not judge(equal, equal, GateLimits()).promote
    assert judge(equal, equal, GateLimits(margin=0.0)).promote


def test_error_within_the_margin_is_not_promoted() -> None:
    new, old = scores(dlrm=0.095), scores(dlrm=0.1)
    assert judge(new, old, GateLimits(margin=0.04)).promote
    verdict = judge(new, old, GateLimits(margin=0.06))
    assert not verdict.promote
    assert "error" in verdict.reason


def test_family_that_gets_worse_prevents_promotion_and_is_named() -> None:
    new, old = scores(dlrm=0.01, dcn=0.01, xdeepfm=0.2), scores(dlrm=0.1, dcn=0.1, xdeepfm=0.1)
    verdict = judge(new, old, GateLimits())
    assert not verdict.promote
    assert "2.00 times the error in xdeepfm" in verdict.reason
    assert "dcn" not in verdict.reason
    (reason,) = verdict.reasons
    assert reason.kind == "not_better"
    assert {name for name in reason.values if name.startswith("family_")} == {"family_xdeepfm"}
    assert "against the bank's prior's 0.100" in judge(new, old, GateLimits(), rival="the bank's prior").reason
    assert judge(new, old, GateLimits(worst_family=1.5)).promote


@pytest.mark.parametrize("old", [[], scores(dlrm=float("nan"))])
def test_without_scores_nothing_is_promoted(old: list[JobScore]) -> None:
    verdict = judge(scores(dlrm=0.1) if old else [], old, GateLimits())
    assert not verdict.promote
    assert "no held-out jobs" in verdict.reason


def test_random_change_in_a_family_of_few_jobs_does_not_prevent_promotion() -> None:
    def scores_of(*errors: float) -> list[JobScore]:
        return [*scores(dlrm=0.1), *(score for error in errors for score in scores(dcn=error))]

    old = scores_of(0.1, 0.12, 0.2)
    assert judge(scores_of(0.02, 0.14, 0.02), old, GateLimits()).promote
    assert judge(scores_of(0.02, 0.14, 0.28), [*scores(dlrm=0.9), *old[1:]], GateLimits()).promote
    assert not judge(scores_of(0.12, 0.15, 0.25), [*scores(dlrm=0.9), *old[1:]], GateLimits()).promote


def test_change_within_the_measurement_error_is_not_worse() -> None:
    new, old = scores(dlrm=0.01, dcn=0.11), scores(dlrm=0.1, dcn=0.1)
    assert not judge(new, old, GateLimits()).promote
    assert judge(new, old, GateLimits(), noise_sd=0.08).promote
    assert not judge(scores(dlrm=0.01, dcn=0.3), old, GateLimits(), noise_sd=0.08).promote


@pytest.mark.parametrize(("margin", "worst"), [(-0.5, 0.05), (2.0, 0.05), (float("nan"), 0.05), (0.02, float("inf"))])
def test_invalid_limits_are_refused(margin: float, worst: float) -> None:
    with pytest.raises(InputError, match="margin must lie between"):
        GateLimits(margin, worst)
