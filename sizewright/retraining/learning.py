"""What a retraining learns, and how well that foretells jobs that were left out."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from sizewright.errors import NotEnoughDataError
from sizewright.how_far import part, steps
from sizewright.models.prior import LearnedPrior
from sizewright.retraining import evaluation
from sizewright.retraining.evaluation import JobScore
from sizewright.retraining.lessons import Lessons, to_judge, to_learn

_SHORT = {"base": "base_out", "family": "family_out", "held-out": "held_out"}
_GROUPS = ("base", "family")


class Learned(NamedTuple):
    """A prior of all lessons, its twin that has not seen those that are held out, and their scores."""

    lessons: Lessons
    held_out: Lessons
    prior: LearnedPrior
    twin: LearnedPrior
    scores: dict[str, list[JobScore]]
    """By how the jobs were left out: each base shape, each family, or those that are held out for good."""

    def metrics(self) -> dict[str, float]:
        """Of all jobs and of each family, by name."""
        found: dict[str, float] = {}
        for how, told in self.scores.items():
            short = _SHORT[how]
            found |= {f"{short}_{metric}": value for metric, value in evaluation.summary(told).items()}
            found |= {f"{short}_mdape_{name}": of["mdape"] for name, of in evaluation.by_family(told).items()}
        return {name: value for name, value in found.items() if value == value}


def learn(lessons: Lessons) -> Learned:
    """Raises NotEnoughDataError of too few lessons."""
    prior = LearnedPrior.fit(lessons.trials, lessons.jobs)
    twin = learn_twin(lessons)
    truth = evaluation.measured(lessons)
    scores = {}
    for number, by in enumerate(_GROUPS):
        with part("leaving jobs out in turn", number, len(_GROUPS)):
            scores[by] = _left_out(lessons, by, truth)
    held_out = to_judge(lessons)
    return Learned(lessons, held_out, prior, twin, scores | {"held-out": evaluation.score_prior(twin, held_out)})


def learn_twin(lessons: Lessons) -> LearnedPrior:
    """Without what champion and challenger are compared on."""
    kept = to_learn(lessons)
    return LearnedPrior.fit(kept.trials, kept.jobs)


def _left_out(lessons: Lessons, by: str, truth: dict[str, evaluation.Measured]) -> list[JobScore]:
    """Scores of all jobs whose group can be left out."""

    def group(key: str) -> str:
        job = lessons.jobs[key]
        return job.base if by == "base" else job.job.model.family

    folds = evaluation.folds_of(len({group(key) for key in lessons.jobs}))
    scores: list[JobScore] = []
    for fold in steps("folds", range(folds)):
        with suppress(NotEnoughDataError):  # without this fold there is too little to learn from
            scores += evaluation.leave_out(lessons, group, fold, folds, truth)
    return scores
