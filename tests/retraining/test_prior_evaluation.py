from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.trial import Trial
from sizewright.models.prior import LearnedPrior
from sizewright.retraining.evaluation import by_family, leave_out, measured_rates, regret_and_rank, score_prior, summary
from sizewright.retraining.lessons import Lessons, gather
from sizewright.spec import Job, Model, Tables


@pytest.fixture(scope="module")
def lessons(made_bank: Bank) -> Lessons:
    return gather(None, made_bank)


@pytest.fixture(scope="module")
def prior(made_bank: Bank) -> LearnedPrior:
    return LearnedPrior.fit(made_bank.trials, made_bank.jobs)


def test_repeats_are_one_allocation(lessons: Lessons) -> None:
    key = str(lessons.trials[0].job_hash)
    first = lessons.trials[0]
    twice = [first, first.model_copy(update={"throughput": 4 * (first.throughput or 0)})]
    rates = measured_rates(lessons._replace(trials=twice))
    assert len(rates[key].first_trials) == 1
    assert rates[key].rates[0] == pytest.approx(2 * (first.throughput or 0))


def test_a_prior_is_scored_on_each_job(lessons: Lessons, prior: LearnedPrior) -> None:
    scores = score_prior(prior, lessons)
    assert len(scores) == len(lessons.jobs)
    overall = summary(scores)
    assert 0.01 < overall["mdape"] < 0.08  # trials vary by 4 %, jobs by 5 %
    assert 0.8 < overall["coverage"] <= 1.0
    assert overall["rank"] > 0.9
    assert set(by_family(scores)) == {"dlrm", "wide_deep", "dcn"}


def test_refused_job_counts_as_an_error_of_100_percent(lessons: Lessons, prior: LearnedPrior) -> None:
    strange = Job(name="huge", model=Model(tables=Tables(count=3000, rows=10**9, dim=2048)))
    key, first = strange.hash, next(iter(lessons.jobs.values()))
    single_trial = [Trial(workers=1, ps=1, throughput=5.0, job_hash=key)]
    (score,) = score_prior(prior, Lessons(single_trial, {key: first._replace(job=strange)}, {}))
    assert score.errors == (1.0,)
    assert "unlike" in score.refused
    assert summary([score])["refused"] == 1


def test_choice_minimizes_time_and_cost() -> None:
    places = [Trial(workers=w, ps=1, worker_cpu=1.0, ps_cpu=1.0) for w in (1, 2, 4)]
    rates = np.array([100.0, 190.0, 200.0])  # time × cost: 2, 3 and 5 cores over the square
    assert regret_and_rank(places, rates, np.log(rates)) == pytest.approx((0.0, 1.0))
    wrong = np.log([100.0, 100.0, 400.0])
    assert regret_and_rank(places, rates, wrong)[0] == pytest.approx((5 / 200**2) / (3 / 190**2) - 1)
    assert regret_and_rank(places, rates, wrong, sd=np.full(len(rates), 0.3))[0] == 0.0
    assert regret_and_rank(places, rates, wrong, sd=0.01)[0] == regret_and_rank(places, rates, wrong)[0]
    assert np.isnan(regret_and_rank(places[:2], rates[:2], wrong[:2])).all()


def test_folds_leave_entire_groups_out_and_score_each_job_once(lessons: Lessons) -> None:
    selected = lessons.only(lambda job: job.base in ("rm1", "rm3", "din", "ncf", "wide-and-deep", "criteo-dlrm"))

    def base(key: str) -> str:
        return selected.jobs[key].base

    scored_jobs = [score.job for fold in range(2) for score in leave_out(selected, base, fold, 2)]
    assert sorted(scored_jobs) == sorted(job.job.name for job in selected.jobs.values())
