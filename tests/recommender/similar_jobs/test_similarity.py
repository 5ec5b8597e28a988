from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trial_bank.files import Bank
from sizewright.models.prior import LearnedPrior
from sizewright.recommender.similar_jobs.similarity import REACH, RUN_SD, Neighbour, similar_jobs
from sizewright.spec import Job, Model, Tables
from tests.helpers.runs_by_prior import NOW, run, scaled_job


@pytest.fixture(scope="module")
def prior(made_bank: Bank) -> LearnedPrior:
    return LearnedPrior.fit(made_bank.trials, made_bank.jobs)


@pytest.fixture(scope="module")
def job(made_bank: Bank) -> Job:
    return next(b.job for b in made_bank.jobs.values() if b.job.name == "criteo-dlrm-a")


def neighbours_of(job: Job, prior: LearnedPrior, *runs: FinishedJob) -> list[Neighbour]:
    return similar_jobs(job, runs, prior, NOW)


def test_residual_of_a_run_is_its_ratio_to_the_prior(job: Job, prior: LearnedPrior) -> None:
    other = scaled_job(job, 2)
    (neighbour,) = neighbours_of(job, prior, run(other, prior, factor=0.5))
    (observation,) = neighbour.residuals
    assert neighbour.job == other
    assert 0 < neighbour.distance < REACH
    assert observation.residual == pytest.approx(np.log(0.5), abs=0.01)
    assert observation.sd == pytest.approx(RUN_SD, rel=0.02)
    assert observation.allocation.batch_size == other.training.batch_size


def test_neighbours_are_sorted_by_distance_and_recent_runs_weigh_more(job: Job, prior: LearnedPrior) -> None:
    near, far = scaled_job(job, 1.1), scaled_job(job, 2)
    old = run(near, prior, factor=4.0, days=200)
    neighbours = neighbours_of(job, prior, run(far, prior), old, run(near, prior, days=1))
    assert [each.job for each in neighbours] == [near, far]
    ((observation,), _) = (each.residuals for each in neighbours)
    assert 0 < observation.residual < 0.2 * np.log(4)
    (alone,) = neighbours_of(job, prior, old)
    assert alone.residuals[0].sd > 2 * RUN_SD


def test_runs_of_the_job_itself_come_first_at_distance_zero(job: Job, prior: LearnedPrior) -> None:
    neighbours = neighbours_of(job, prior, run(scaled_job(job, 2), prior), run(job, prior, factor=0.5))
    assert (neighbours[0].job, neighbours[0].distance) == (job, 0.0)
    assert neighbours[0].residuals[0].residual == pytest.approx(np.log(0.5), abs=0.01)


def test_runs_without_information_are_excluded(job: Job, prior: LearnedPrior) -> None:
    good = run(scaled_job(job, 2), prior)
    short = good.model_copy(update={"stretches": (good.stretches[0].model_copy(update={"duration_s": 5.0}),)})
    unlike = good.model_copy(update={"job": Job(model=Model(tables=Tables(count=900, rows=10**6, dim=512)))})
    uncounted = good.model_copy(update={"job": Job(model=Model(tables=Tables(count=26, rows="from-data")))})
    without_job = good.model_copy(update={"job": None})
    assert neighbours_of(job, prior, unlike, uncounted, without_job) == []
    ended = run(scaled_job(job, 2), prior, oom="ps-0")
    assert [each.residuals for each in neighbours_of(job, prior, short, ended)] == [[]]


def test_distant_job_has_no_residuals(job: Job, prior: LearnedPrior) -> None:
    far = next(
        each for times in (4, 8, 16, 32) if prior.job_effects.distance(job, each := scaled_job(job, times)) > REACH
    )
    assert [each.residuals for each in neighbours_of(job, prior, run(far, prior))] in ([], [[]])


def test_implausible_residuals_are_excluded(job: Job, prior: LearnedPrior) -> None:
    (alone,) = neighbours_of(job, prior, run(scaled_job(job, 2), prior, factor=1000.0))
    assert alone.residuals == []
    jobs = [scaled_job(job, times) for times in (1.1, 1.2, 1.3, 1.4)]
    neighbours = neighbours_of(
        job, prior, *(run(each, prior, factor=0.5) for each in jobs[:3]), run(jobs[3], prior, factor=10.0)
    )
    assert [len(each.residuals) for each in neighbours] == [1, 1, 1, 0]
