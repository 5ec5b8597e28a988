from __future__ import annotations

import re

import numpy as np
import pytest

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import GIB, MIB
from sizewright.models.prior import LearnedPrior
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.spec import Bounds, Job, Recommendation, RoleBounds
from tests.helpers.runs_by_prior import NOW, run, scaled_job

BOUNDS = Bounds(worker=RoleBounds(replicas=(1, 4), cpu=(0.2, 1.0)), ps=RoleBounds(replicas=(1, 3), cpu=(0.1, 0.5)))


@pytest.fixture(scope="module")
def prior(made_bank: Bank) -> LearnedPrior:
    known = {key: each for key, each in made_bank.jobs.items() if each.base != "criteo-dlrm"}
    return LearnedPrior.fit([t for t in made_bank.trials if t.job_hash in known], known)


@pytest.fixture(scope="module")
def job(made_bank: Bank) -> Job:
    bank_job = next(b.job for b in made_bank.jobs.values() if b.job.name == "criteo-dlrm-a")
    return bank_job.model_copy(update={"bounds": BOUNDS})


@pytest.fixture(scope="module")
def ask(job: Job, prior: LearnedPrior):
    def asked(*history: FinishedJob, trials: list[Trial] | None = None, of: Job | None = None) -> Recommendation:
        answer = recommend(SizingRequest(of or job, trials or (), prior=prior, history=history, now=NOW))
        assert answer.status == "ok"
        return answer

    return asked


def rate(answer: Recommendation) -> float:
    assert answer.predicted is not None
    return answer.predicted.throughput.value


def test_recommendation_without_runs_is_that_of_the_prior(ask) -> None:
    plain = ask()
    assert any(text.startswith("Cold start") for text in plain.reasons)
    assert plain.evidence.similar == ()


def test_distant_job_is_not_used(ask, job: Job, prior: LearnedPrior, made_bank: Bank) -> None:
    known = [each.job for each in made_bank.jobs.values()]
    far = max(known, key=lambda other: prior.job_effects.distance(job, other))
    assert prior.job_effects.distance(job, far) > prior.job_effects.max_distance
    assert ask(run(far, prior, factor=0.1, peaks=(8 * GIB, 8 * GIB))) == ask()


def test_similar_jobs_at_half_speed_lower_the_prediction(ask, job: Job, prior: LearnedPrior) -> None:
    history = [run(scaled_job(job, times), prior, factor=0.5, workers=n) for times, n in ((0.5, 2), (2, 3), (1.5, 4))]
    plain, answer = ask(), ask(*history)
    assert rate(answer) == pytest.approx(0.5 * rate(plain), rel=0.15)
    assert {each.name for each in answer.evidence.similar} == {"like-0.5", "like-2", "like-1.5"}
    assert sum(each.weight for each in answer.evidence.similar) == pytest.approx(1.0)
    assert all(each.weight > 0 and each.runs == 1 for each in answer.evidence.similar)
    (reason,) = (text for text in answer.reasons if text.startswith("Warm start from 3 runs of 3 similar jobs"))
    assert "like-1.5 (" in reason
    assert not any("Cold start" in text for text in answer.reasons)


def test_many_runs_of_one_job_count_little_more_than_a_few(ask, job: Job, prior: LearnedPrior) -> None:
    slow, fast = scaled_job(job, 0.8), scaled_job(job, 1.25)
    other = run(fast, prior)

    def weight(runs: int) -> float:
        mine = [run(slow, prior, factor=0.8, days=1 + n / 100) for n in range(runs)]
        return next(each.weight for each in ask(other, *mine).evidence.similar if each.name == slow.name)

    assert weight(1) < weight(3) < weight(30) < 0.85
    assert weight(30) - weight(3) < 0.15


def test_earlier_runs_of_the_job_itself_are_named(ask, job: Job, prior: LearnedPrior) -> None:
    own, other = run(job, prior, factor=0.8), run(scaled_job(job, 2), prior, factor=0.8)
    (alone,) = [text for text in ask(own).reasons if text.startswith("Warm start")]
    assert alone == "Warm start from 1 earlier run of this job (100 %)."
    (both,) = [text for text in ask(own, other).reasons if text.startswith("Warm start")]
    assert re.fullmatch(
        r"Warm start from 1 earlier run of this job \(\d+ %\) and 1 run of 1 similar job: like-2 \(\d+ %\)\.", both
    )


def test_only_runs_whose_throughput_was_used_are_counted(ask, job: Job, prior: LearnedPrior) -> None:
    other = scaled_job(job, 2)
    killed = run(other, prior, days=3, oom="ps-0")
    (similar,) = ask(
        run(other, prior), run(other, prior, days=2), run(other, prior, workers=3), killed
    ).evidence.similar
    assert similar.runs == 3


def trials_of(job: Job, prior: LearnedPrior, factor: float) -> list[Trial]:
    places = [Trial(workers=1 + i % 4, ps=1 + i % 2, worker_cpu=0.4, ps_cpu=0.3) for i in range(4)]
    rates = factor * np.exp(prior.curve(job).log_rates(places))
    known = {"batch_size": job.training.batch_size}
    return [
        place.model_copy(update=known | {"throughput": float(one), "throughput_se": 0.01 * float(one)})
        for place, one in zip(places, rates, strict=True)
    ]


def test_trials_of_the_job_outweigh_runs_of_similar_jobs(ask, job: Job, prior: LearnedPrior) -> None:
    mine = trials_of(job, prior, 1.0)
    alone = ask(trials=mine)
    both = ask(run(scaled_job(job, 2), prior, factor=0.9), trials=mine)
    assert rate(both) == pytest.approx(rate(alone), rel=0.05)
    assert both.evidence.similar
    assert not any("Cold start" in text for text in alone.reasons)


def test_runs_that_contradict_trials_of_the_job_are_ignored_and_named(ask, job: Job, prior: LearnedPrior) -> None:
    mine = trials_of(job, prior, 1.0)
    history = [run(scaled_job(job, times), prior, factor=0.2) for times in (0.8, 1.25, 2)]
    answer, alone = ask(*history, trials=mine), ask(trials=mine)
    assert answer.predicted == alone.predicted
    assert answer.evidence.similar == ()
    assert any("Runs of similar jobs are ignored" in text for text in answer.reasons)


def memory(answer: Recommendation) -> tuple[int, int]:
    assert answer.target is not None
    return answer.target.worker[0].memory_bytes, answer.target.ps[0].memory_bytes


def test_memory_peaks_of_similar_jobs_raise_the_request(ask, job: Job, prior: LearnedPrior) -> None:
    plain, answer = ask(), ask(run(scaled_job(job, 2), prior, peaks=(2 * GIB, GIB)))
    assert memory(plain)[0] < 2 * GIB <= memory(answer)[0]
    assert memory(plain)[1] < memory(answer)[1]
    assert any("peaks of 1 run of 1 similar job" in text for text in answer.evidence.assumptions)


def test_peak_of_an_oom_run_only_raises_the_request(ask, job: Job, prior: LearnedPrior) -> None:
    others = [scaled_job(job, times) for times in (0.8, 0.9, 1.1, 1.25)]
    measured = [run(each, prior, peaks=(200 * MIB, 100 * MIB)) for each in others]
    cut_off = [run(each, prior, peaks=(200 * MIB, 100 * MIB), oom="worker-0") for each in others]
    assert memory(ask(*measured))[0] < memory(ask())[0]
    assert memory(ask(*cut_off))[0] == memory(ask())[0]
    higher = run(scaled_job(job, 2), prior, peaks=(600 * MIB, 100 * MIB))
    ended = run(scaled_job(job, 2), prior, peaks=(600 * MIB, 100 * MIB), oom="worker-0")
    assert memory(ask(*measured))[0] < memory(ask(*measured, higher))[0] < memory(ask(*measured, ended))[0]


def test_impossible_peak_is_ignored(ask, job: Job, prior: LearnedPrior) -> None:
    plausible = [run(scaled_job(job, times), prior, peaks=(500 * MIB, 300 * MIB)) for times in (0.8, 0.9, 1.1, 1.25)]
    broken = run(scaled_job(job, 2), prior, peaks=(900 * GIB, 900 * GIB))
    assert memory(ask(*plausible, broken)) == memory(ask(*plausible))


def test_bounds_limit_the_memory_of_similar_jobs(ask, job: Job, prior: LearnedPrior) -> None:
    answer = ask(run(scaled_job(job, 2), prior, peaks=(900 * GIB, 900 * GIB)))
    assert memory(answer) == memory(ask())
    assert any("The memory of similar jobs is ignored" in text for text in answer.reasons)
    assert answer.target is not None
    assert BOUNDS.worker.replicas[0] <= answer.target.replicas("worker") <= BOUNDS.worker.replicas[1]
