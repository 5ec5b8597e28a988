"""Two registered priors side by side, on the same held-out jobs."""

from __future__ import annotations

from typing import TypedDict, cast

from sizewright.retraining.evaluation import by_family, score_prior, summary
from sizewright.retraining.lessons import Lessons, to_judge
from sizewright.retraining.registry import TWIN, Registry, Version


class PriorScore(TypedDict):
    """How well a version foretells the held-out jobs of a family, or of all. Errors, regret and coverage are shares."""

    version: int
    family: str
    mdape: float
    """Median error over all trials."""
    job_mdape: float
    """Mean over jobs of their median errors."""
    regret: float
    """Mean over jobs: what its choice loses against the best allocation that was measured."""
    rank: float
    """Mean over jobs of Spearman's rank correlation between foretold and measured."""
    coverage: float
    """Trials within its 90 % interval."""
    refused: float
    """Jobs that it tells nothing of."""
    jobs: float


def compare_versions(registry: Registry, versions: list[Version], lessons: Lessons) -> list[PriorScore]:
    """One row a version and family, and one for all jobs. None was taught what they are compared on."""
    held_out = to_judge(lessons)
    rows = list[PriorScore]()
    for version in versions:
        scores = score_prior(registry.load(version, TWIN), held_out)
        told = {"all": summary(scores)} | by_family(scores)
        rows += [
            cast("PriorScore", {"version": version.number, "family": family, **values})
            for family, values in told.items()
        ]
    return rows
