from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.trial import Trial
from sizewright.models.prior import LearnedPrior
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.spec import (
    Allocation,
    Bounds,
    Cluster,
    Failure,
    HostKind,
    Job,
    Model,
    Outcome,
    Quota,
    RoleBounds,
    Tables,
)
from tests.helpers import synthetic_trials

BOUNDS = Bounds(worker=RoleBounds(replicas=(1, 4), cpu=(0.2, 1.0)), ps=RoleBounds(replicas=(1, 3), cpu=(0.1, 0.5)))


@pytest.fixture(scope="module")
def prior(made_bank: Bank) -> LearnedPrior:
    return LearnedPrior.fit(made_bank.trials, made_bank.jobs)


@pytest.fixture
def job(made_bank: Bank) -> Job:
    bank_job = next(b.job for b in made_bank.jobs.values() if b.job.name == "criteo-dlrm-a")
    return bank_job.model_copy(update={"bounds": BOUNDS})


def test_a_job_without_trials_gets_a_target(job: Job, prior: LearnedPrior) -> None:
    answer = recommend(SizingRequest(job, prior=prior))
    assert answer.status == "ok"
    assert answer.target is not None
    assert answer.predicted is not None
    assert answer.evidence.trials == 0
    assert answer.evidence.model == "prior"
    assert "of several jobs, this one among them; no other trials of this job were given" in answer.reasons[0]
    assert any("calculated from the job file" in text for text in answer.evidence.assumptions)
    rate = answer.predicted.throughput
    assert rate.lower < rate.value < rate.upper
    assert answer.target.ps[0].memory_bytes > 0


def test_memory_peaks_of_runs_raise_the_request_and_oom_more(job: Job, prior: LearnedPrior) -> None:
    def asks(*runs: FinishedJob) -> tuple[int, int]:
        target = recommend(SizingRequest(job, prior=prior, runs=runs)).target
        assert target is not None
        return target.worker[0].memory_bytes, target.ps[0].memory_bytes

    gib = 1 << 30
    allocation = Allocation.of(2, 1, 0.5, 0.3, job.training.batch_size)
    stretch = Segment(at_s=0, duration_s=100, allocation=allocation)
    outcome = Outcome(status="finished", duration_s=100)
    run = FinishedJob(
        id="1", name="j", job=job, stretches=(stretch,), outcome=outcome,
        worker=JobUsage(memory_peak_bytes=2 * gib), ps=JobUsage(memory_peak_bytes=gib),
    )  # fmt: skip
    ended = outcome.model_copy(update={"failures": (Failure(at_s=100, replica="j-worker-1", cause="oom"),)})
    plain, measured_peak, killed = asks(), asks(run), asks(run.model_copy(update={"outcome": ended}))
    assert plain[0] < 2 * gib <= measured_peak[0] < 1.2 * 2 * gib <= killed[0]
    assert plain[1] < gib <= measured_peak[1] == killed[1]
    assumed = recommend(SizingRequest(job, prior=prior, runs=[run])).evidence.assumptions
    assert any("peaks of 1 run of this job" in text for text in assumed)


def test_job_without_trials_and_prior_has_not_enough_data(job: Job) -> None:
    answer = recommend(SizingRequest(job))
    assert answer.status == "not_enough_data"
    assert any("--prior" in remedy.text for remedy in answer.remedies)


def test_a_trial_narrows_the_prediction_of_the_prior(job: Job, prior: LearnedPrior, made_bank: Bank) -> None:
    before = recommend(SizingRequest(job, prior=prior))
    mine = [t.model_copy(update={"table_scale": 1.0}) for t in made_bank.trials if t.job_hash == job.hash]
    after = recommend(SizingRequest(job, mine, prior=prior))
    assert after.status == "ok"
    assert after.evidence.model == "default"
    assert "and 12 trials given for this job" in after.reasons[0]
    assert before.predicted is not None
    assert after.predicted is not None
    width = [a.predicted.throughput.upper / a.predicted.throughput.lower for a in (before, after) if a.predicted]
    assert width[1] < width[0]


def test_job_unlike_all_others_is_refused(prior: LearnedPrior) -> None:
    strange = Job(name="huge", model=Model(tables=Tables(count=3000, rows=10**9, dim=2048)))
    answer = recommend(SizingRequest(strange, prior=prior))
    assert answer.status == "not_enough_data"
    assert "there are no trials of this job" in answer.reasons[0]
    assert answer.reasons[1].startswith("huge is unlike")
    assert [reason.kind for reason in answer.reason_details] == ["no_trials", "prior_refused"]
    assert answer.target is None


def test_trials_suffice_if_the_prior_refuses(prior: LearnedPrior) -> None:
    narrow = replace(prior, job_effects=prior.job_effects._replace(max_distance=0.1))
    answer = recommend(SizingRequest(synthetic_trials.small_job(), synthetic_trials.trials(), prior=narrow))
    assert answer.status == "ok"
    assert any("unlike" in text for text in answer.reasons)


def test_answer_without_target_names_ignored_data(job: Job, prior: LearnedPrior) -> None:
    narrow = replace(prior, job_effects=prior.job_effects._replace(max_distance=0.1))
    small, trials = synthetic_trials.small_job(), synthetic_trials.trials()
    few = recommend(SizingRequest(small, trials[:2], prior=narrow))
    assert few.status == "not_enough_data"
    assert any("unlike" in reason for reason in few.reasons[1:])
    assert not any("--prior" in remedy.text for remedy in few.remedies)
    cluster = Cluster(hosts=(HostKind(kind="h", cpu=64, memory=1 << 36),), quota=Quota(cpu=0.1))
    refused = recommend(SizingRequest(small, trials, prior=narrow, cluster=cluster))
    assert refused.status == "infeasible"
    assert [reason.kind for reason in refused.reason_details] == ["quota", "prior_refused"]
    odd = recommend(SizingRequest(job, measured(prior, job, [1.2, 1.3, 1.1, 1000.0]), prior=prior, cluster=cluster))
    assert odd.status == "infeasible"
    assert [reason.kind for reason in odd.reason_details] == ["quota", "trial_ignored"]
    assert len(odd.reasons) == 2


def test_ratio_of_an_ignored_trial_has_the_centre_of_the_test(job: Job, prior: LearnedPrior) -> None:
    answer = recommend(SizingRequest(job, measured(prior, job, [3.0, 3.0, 3.0, 3.0, 300.0]), prior=prior))
    (reason,) = [reason for reason in answer.reasons if "is ignored" in reason]
    assert "100 times what the prior and the job's other trials predict. Measure it again." in reason
    answer = recommend(SizingRequest(job, measured(prior, job, [1000.0]), prior=prior))
    assert any("1,000 times what the prior predicts." in reason for reason in answer.reasons)


def test_prior_that_was_used_is_not_among_the_remedies(job: Job, prior: LearnedPrior) -> None:
    large = Bounds(worker=RoleBounds(replicas=(40, 60), cpu=(8, 16)), ps=RoleBounds(replicas=(20, 30), cpu=(4, 8)))
    answer = recommend(SizingRequest(job.model_copy(update={"bounds": large}), prior=prior))
    assert answer.status == "not_enough_data"
    assert not any("--prior" in remedy.text for remedy in answer.remedies)


def test_allocations_far_beyond_all_trials_are_not_chosen(job: Job, prior: LearnedPrior) -> None:
    large = Bounds(worker=RoleBounds(replicas=(40, 60), cpu=(8, 16)), ps=RoleBounds(replicas=(20, 30), cpu=(4, 8)))
    answer = recommend(SizingRequest(job.model_copy(update={"bounds": large}), prior=prior))
    assert answer.status == "not_enough_data"


def measured(prior: LearnedPrior, job: Job, factors: list[float]) -> list[Trial]:
    """Return trials with the predicted throughput times each factor."""
    rows = [Trial(workers=1 + i % 4, ps=1 + i % 2, worker_cpu=0.3, ps_cpu=0.2) for i in range(len(factors))]
    rates = np.exp(prior.curve(job).log_rates(rows))
    trials = [t.model_copy(update={"throughput": r * f}) for t, r, f in zip(rows, rates, factors, strict=True)]
    return [t.model_copy(update={"batch_size": job.training.batch_size}) for t in trials]


@pytest.mark.parametrize("factors", [[1000.0], [0.001], [1.1, 2000.0], [1.2, 1.3, 1.1, 1000.0], [1.0, 1.0, 1.0, 0.01]])
def test_trial_that_contradicts_all_others_is_ignored_and_named(
    job: Job, prior: LearnedPrior, factors: list[float]
) -> None:
    plausible = [factor for factor in factors if 0.1 < factor < 10]
    answer, clean = (
        recommend(SizingRequest(job, measured(prior, job, ratios), prior=prior)) for ratios in (factors, plausible)
    )
    assert answer.target == clean.target
    rate, without = answer.predicted.throughput.model_dump(), clean.predicted.throughput.model_dump()
    assert rate == pytest.approx(without, rel=1e-9)  # of more rows at once the last digit may differ
    assert answer.evidence.trials == len(plausible)
    assert sum("is ignored" in reason for reason in answer.reasons) == len(factors) - len(plausible)


def test_prior_is_ignored_if_many_consistent_trials_contradict_it(job: Job, prior: LearnedPrior) -> None:
    trials = measured(prior, job, [50.0] * 8)
    answer = recommend(SizingRequest(job, trials, prior=prior))
    assert answer.evidence.trials == 8
    assert answer.reasons[0].startswith("The prior is ignored: ")
    assert "50 times the prediction" in answer.reasons[0]
    assert answer.predicted == recommend(SizingRequest(job, trials)).predicted


def test_trials_of_a_host_twice_as_fast_are_kept(job: Job, prior: LearnedPrior) -> None:
    for count in (1, 2, 8):
        answer = recommend(SizingRequest(job, measured(prior, job, [2.0] * count), prior=prior))
        assert answer.evidence.trials == count
        assert not any("ignored" in reason for reason in answer.reasons)


def test_refused_job_has_no_remedy_with_the_prior(prior: LearnedPrior) -> None:
    strange = Job(name="huge", model=Model(tables=Tables(count=3000, rows=10**9, dim=2048)))
    assert not any("--prior" in remedy.text for remedy in recommend(SizingRequest(strange, prior=prior)).remedies)
