"""Learning of a retraining: the prior, and its accuracy on jobs that were left out."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from sizewright.errors import NotEnoughDataError
from sizewright.models.prior import LearnedPrior
from sizewright.retraining import evaluation
from sizewright.retraining.evaluation import JobScore
from sizewright.retraining.lessons import Lessons, to_judge, to_learn
from sizewright.task_progress import part, steps

_PREFIXES = {"base": "base_out", "family": "family_out", "held-out": "held_out"}
_GROUPS = ("base", "family")


class Learned(NamedTuple):
    """A prior learned from all lessons, its twin without the held-out ones, and their scores."""

    lessons: Lessons
    held_out: Lessons
    prior: LearnedPrior
    twin: LearnedPrior
    scores: dict[str, list[JobScore]]
    """Scores by the way jobs were left out: each base shape, each family, or those that are always held out."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics of all jobs and of each family, by name."""
        values: dict[str, float] = {}
        for left_out, scores in self.scores.items():
            prefix = _PREFIXES[left_out]
            values |= {f"{prefix}_{metric}": value for metric, value in evaluation.summary(scores).items()}
            for family, summary in evaluation.by_family(scores).items():
                values[f"{prefix}_mdape_{family}"] = summary["mdape"]
        return {name: value for name, value in values.items() if not np.isnan(value)}


def learn(lessons: Lessons) -> Learned:
    """Learn a prior and score it. Raises NotEnoughDataError with too few lessons."""
    prior = LearnedPrior.fit(lessons.trials, lessons.jobs)
    twin = learn_twin(lessons)
    truth = evaluation.measured_rates(lessons)
    scores = {}
    for number, by in enumerate(_GROUPS):
        with part("leaving jobs out in turn", number, len(_GROUPS)):
            scores[by] = _leave_groups_out(lessons, by, truth)
    held_out = to_judge(lessons)
    return Learned(lessons, held_out, prior, twin, scores | {"held-out": evaluation.score_prior(twin, held_out)})


def learn_twin(lessons: Lessons) -> LearnedPrior:
    """Learn a prior without the lessons that champion and challenger are compared on."""
    training = to_learn(lessons)
    return LearnedPrior.fit(training.trials, training.jobs)


def _leave_groups_out(lessons: Lessons, by: str, truth: dict[str, evaluation.MeasuredRates]) -> list[JobScore]:
    """Return the scores of all jobs whose group can be left out."""

    def group(key: str) -> str:
        job = lessons.jobs[key]
        return job.base if by == "base" else job.job.model.family

    folds = evaluation.folds_of(len({group(key) for key in lessons.jobs}))
    scores: list[JobScore] = []
    for fold in steps("folds", range(folds)):
        with suppress(NotEnoughDataError):  # without this fold too few trials remain
            scores += evaluation.leave_out(lessons, group, fold, folds, truth)
    return scores
