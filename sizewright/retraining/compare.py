"""Two registered priors side by side, on the same held-out jobs."""

from __future__ import annotations

from typing import Any

from sizewright.retraining.evaluation import by_family, score_prior, summary
from sizewright.retraining.lessons import Lessons, to_judge
from sizewright.retraining.registry import TWIN, Registry, Version


def compare_versions(registry: Registry, versions: list[Version], lessons: Lessons) -> list[dict[str, Any]]:
    """One row a version and family, and one for all jobs. None was taught what they are compared on."""
    held_out = to_judge(lessons)
    rows = []
    for version in versions:
        scores = score_prior(registry.load(version, TWIN), held_out)
        told = {"all": summary(scores)} | by_family(scores)
        rows += [{"version": version.number, "family": family, **values} for family, values in told.items()]
    return rows
