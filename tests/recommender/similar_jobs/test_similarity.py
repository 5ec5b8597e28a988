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


def found(job: Job, prior: LearnedPrior, *runs: FinishedJob) -> list[Neighbour]:
    return similar_jobs(job, runs, prior, NOW)


def test_what_a_run_showed_beyond_what_was_foretold(job: Job, prior: LearnedPrior) -> None:
    other = scaled_job(job, 2)
    (told,) = found(job, prior, run(other, prior, factor=0.5))
    (observation,) = told.residuals
    assert told.job == other
    assert 0 < told.distance < REACH
    assert observation.residual == pytest.approx(np.log(0.5), abs=0.01)
    assert observation.sd == pytest.approx(RUN_SD, rel=0.02)
    assert observation.allocation.batch_size == other.training.batch_size


def test_the_nearest_first_and_the_later_counts_for_more(job: Job, prior: LearnedPrior) -> None:
    near, far = scaled_job(job, 1.1), scaled_job(job, 2)
    old = run(near, prior, factor=4.0, days=200)
    told = found(job, prior, run(far, prior), old, run(near, prior, days=1))
    assert [each.job for each in told] == [near, far]
    ((observation,), _) = (each.residuals for each in told)
    assert 0 < observation.residual < 0.2 * np.log(4)
    (alone,) = found(job, prior, old)
    assert alone.residuals[0].sd > 2 * RUN_SD


def test_its_own_runs_tell_most(job: Job, prior: LearnedPrior) -> None:
    told = found(job, prior, run(scaled_job(job, 2), prior), run(job, prior, factor=0.5))
    assert (told[0].job, told[0].distance) == (job, 0.0)
    assert told[0].residuals[0].residual == pytest.approx(np.log(0.5), abs=0.01)


def test_those_that_tell_nothing_are_left_out(job: Job, prior: LearnedPrior) -> None:
    good = run(scaled_job(job, 2), prior)
    short = good.model_copy(update={"stretches": (good.stretches[0].model_copy(update={"duration_s": 5.0}),)})
    strange = good.model_copy(update={"job": Job(model=Model(tables=Tables(count=900, rows=10**6, dim=512)))})
    uncounted = good.model_copy(update={"job": Job(model=Model(tables=Tables(count=26, rows="from-data")))})
    nobodys = good.model_copy(update={"job": None})
    assert found(job, prior, strange, uncounted, nobodys) == []
    ended = run(scaled_job(job, 2), prior, oom="ps-0")
    assert [each.residuals for each in found(job, prior, short, ended)] == [[]]


def test_a_job_out_of_reach_tells_nothing_of_throughput(job: Job, prior: LearnedPrior) -> None:
    far = next(
        each for times in (4, 8, 16, 32) if prior.job_effects.distance(job, each := scaled_job(job, times)) > REACH
    )
    assert [each.residuals for each in found(job, prior, run(far, prior))] in ([], [[]])


def test_what_no_job_can_show_is_left_out(job: Job, prior: LearnedPrior) -> None:
    (alone,) = found(job, prior, run(scaled_job(job, 2), prior, factor=1000.0))
    assert alone.residuals == []
    jobs = [scaled_job(job, times) for times in (1.1, 1.2, 1.3, 1.4)]
    told = found(job, prior, *(run(each, prior, factor=0.5) for each in jobs[:3]), run(jobs[3], prior, factor=10.0))
    assert [len(each.residuals) for each in told] == [1, 1, 1, 0]
