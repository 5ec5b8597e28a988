"""Two registered priors side by side, on the same held-out jobs."""

from __future__ import annotations

from typing import TypedDict, cast

from sizewright.retraining.evaluation import by_family, score_prior, summary
from sizewright.retraining.lessons import Lessons, to_judge
from sizewright.retraining.registry import TWIN, Registry, Version


class PriorScore(TypedDict):
    """The accuracy of a version on the held-out jobs of a family, or of all. Errors, regret and coverage are shares."""

    version: int
    family: str
    mdape: float
    """Median error over all trials."""
    job_mdape: float
    """Mean over jobs of their median errors."""
    regret: float
    """Mean over jobs: the loss of its choice against the best measured allocation."""
    rank: float
    """Mean over jobs of Spearman's rank correlation between predicted and measured samples/s."""
    coverage: float
    """Share of allocations within the 90 % interval."""
    refused: float
    """Number of jobs that it cannot predict."""
    jobs: float


def compare_versions(registry: Registry, versions: list[Version], lessons: Lessons) -> list[PriorScore]:
    """Return a row for each version and family, and one for all jobs. No version has learned from these jobs."""
    held_out = to_judge(lessons)
    rows = list[PriorScore]()
    for version in versions:
        scores = score_prior(registry.load(version, TWIN), held_out)
        summaries = {"all": summary(scores)} | by_family(scores)
        rows += [
            cast("PriorScore", {"version": version.number, "family": family, **values})
            for family, values in summaries.items()
        ]
    return rows
