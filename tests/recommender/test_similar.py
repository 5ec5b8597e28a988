from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from sizewright.datasets.bank.files import Bank
from sizewright.datasets.finished import FinishedJob, Stretch
from sizewright.models.prior import LearnedPrior
from sizewright.recommender.similar import REACH, Neighbour, neighbours
from sizewright.spec import Allocation, Failure, Job, Model, Outcome, Tables

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def prior(made_bank: Bank) -> LearnedPrior:
    return LearnedPrior.fit(made_bank.trials, made_bank.jobs)


@pytest.fixture(scope="module")
def job(made_bank: Bank) -> Job:
    return next(b.job for b in made_bank.jobs.values() if b.job.name == "criteo-dlrm-a")


def like(job: Job, batch_size: int) -> Job:
    return job.model_copy(update={"name": "other"}).with_batch_size(batch_size)


def run(of: Job, prior: LearnedPrior, factor: float = 1.0, days: float = 1.0, workers: int = 2) -> FinishedJob:
    """One that went so many times as fast as foretold."""
    allocation = Allocation.of(workers, 1, 0.5, 0.3, of.training.batch_size)
    place = {"workers": float(workers), "ps": 1.0, "worker_cpu": 0.5, "ps_cpu": 0.3}
    rate = factor * float(np.exp(prior.curve(of).log_rates([place])[0]))
    stretch = Stretch(at_s=0, duration_s=100, allocation=allocation, samples=round(100 * rate))
    return FinishedJob(
        id=f"{of.hash}-{days}-{workers}", name=of.name, job=of, stretches=(stretch,),
        outcome=Outcome(status="finished"), started_at=NOW - timedelta(days=days),
    )  # fmt: skip


def found(job: Job, prior: LearnedPrior, *runs: FinishedJob) -> list[Neighbour]:
    return neighbours(job, runs, prior, NOW)


def test_what_a_run_showed_beyond_what_was_foretold_is_told_of_a_job_like_it(job: Job, prior: LearnedPrior) -> None:
    other = like(job, 2 * job.training.batch_size)
    (told,) = found(job, prior, run(other, prior, factor=0.5))
    assert 0 < told.distance < REACH
    assert told.trial.job_hash == job.hash
    assert told.trial.batch_size == job.training.batch_size
    place = {"workers": 2.0, "ps": 1.0, "worker_cpu": 0.5, "ps_cpu": 0.3}
    assert told.trial.throughput == pytest.approx(0.5 * float(np.exp(prior.curve(job).log_rates([place])[0])), rel=0.01)
    assert told.weight == 1.0


def test_the_nearer_and_the_later_count_for_more(job: Job, prior: LearnedPrior) -> None:
    near, far = like(job, job.training.batch_size + 1), like(job, 2 * job.training.batch_size)
    told = found(job, prior, run(far, prior), run(near, prior), run(near, prior, days=200))
    assert (told[0].run.job, told[0].run.id.split("-")[1]) == (near, "1.0")
    assert sum(each.weight for each in told) == pytest.approx(1.0)
    by = {each.run.id: each for each in told}
    old, new = by[f"{near.hash}-200-2"], by[f"{near.hash}-1.0-2"]
    assert old.weight < 0.2 * new.weight
    assert (old.trial.throughput_se or 0) > 2 * (new.trial.throughput_se or 0)


def test_those_that_tell_nothing_are_left_out(job: Job, prior: LearnedPrior) -> None:
    good = run(like(job, 2 * job.training.batch_size), prior)
    oom = good.model_copy(
        update={"outcome": Outcome(status="failed", failures=(Failure(at_s=1, replica="ps-0", cause="oom"),))}
    )
    short = good.model_copy(update={"stretches": (good.stretches[0].model_copy(update={"duration_s": 5.0}),)})
    itself = run(like(job, job.training.batch_size), prior)
    strange = good.model_copy(update={"job": Job(model=Model(tables=Tables(count=900, rows=10**6, dim=512)))})
    assert found(job, prior, oom, short, itself, strange, good.model_copy(update={"job": None})) == []
    assert len(found(job, prior, good)) == 1
    assert found(Job(model=Model(tables=Tables(count=2000, rows=10**9, dim=1024))), prior, good) == []
