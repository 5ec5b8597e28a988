from __future__ import annotations

import numpy as np
from made_runs import ALLOCATION, run_of

from sizewright.datasets.bank.files import Bank
from sizewright.datasets.bank.shapes import BASES
from sizewright.datasets.finished import Stretch
from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial
from sizewright.retraining.lessons import gather, is_held_out, to_judge, to_learn
from sizewright.spec import Allocation, Failure, Job, Model, Outcome, Tables
from sizewright.spec.command import Command

JOB = Job(name="ctr", model=Model(tables=Tables(count=19, rows=1000, dim=8)))


def trial(**told: object) -> Trial:
    usual = {"workers": 1, "ps": 1, "throughput": 100.0, "job_hash": JOB.hash, "worker_cpu": 1.0, "ps_cpu": 1.0}
    return Trial.model_validate(usual | told)


def test_trials_of_described_jobs_are_learned_from(store: TrialStore, made_bank: Bank) -> None:
    store.history.add_job(JOB)
    store.add(trial())
    lessons = gather(store, made_bank)
    assert len(lessons.trials) == len(made_bank.trials) + 1
    assert lessons.jobs[JOB.hash].base == "dlrm-19"
    assert lessons.passed_over == {}


def test_what_cannot_be_learned_from_is_counted(store: TrialStore) -> None:
    own = Job(command=Command(run="python train.py"))
    for job in (JOB, own):
        store.history.add_job(job)
    for told in (
        trial(throughput=None, status="failed"),
        trial(status="oom", throughput=None),
        trial(status="void"),
        trial(job_hash="nobody"),
        trial(job_hash=own.hash),
        trial(ps=0, ps_cpu=None),
    ):
        store.add(told)
    lessons = gather(store, None)
    assert lessons.trials == []
    assert sum(lessons.passed_over.values()) == 6
    assert lessons.passed_over["of a job that is not described"] == 1
    assert lessons.passed_over["of a job that the prior tells nothing of"] == 2


def test_runs_tell_of_each_allocation_that_they_trained_long_enough_at(store: TrialStore) -> None:
    two = (
        Stretch(at_s=0, duration_s=50, allocation=ALLOCATION, samples=50_000),
        Stretch(at_s=50, duration_s=40, allocation=Allocation.of(4, 1, 0.5, 0.25, 512), samples=80_000),
        Stretch(at_s=90, duration_s=5, allocation=ALLOCATION, samples=9_000),
    )
    store.history.add([run_of(JOB, stretches=two)])
    lessons = gather(store, None)
    assert [(t.workers, t.throughput, t.worker_cpu, t.ps_cpu) for t in lessons.trials] == [
        (2, 1000.0, 0.5, 0.25),
        (4, 2000.0, 0.5, 0.25),
    ]
    assert lessons.passed_over == {"stretches of runs that were too short": 1}


def test_runs_that_memory_ended_teach_nothing(store: TrialStore) -> None:
    oom = Outcome(status="failed", failures=(Failure(at_s=1.0, replica="ps-0", cause="oom"),))
    store.history.add([run_of(JOB, 1, outcome=oom), run_of(None, 2)])
    lessons = gather(store, None)
    assert lessons.trials == []
    assert lessons.passed_over["runs that memory ended"] == 1
    assert lessons.passed_over["runs of a job that is not described"] == 1


def test_of_own_jobs_one_trial_in_four_is_for_judging_and_of_the_bank_whole_base_shapes(
    store: TrialStore, made_bank: Bank
) -> None:
    store.history.add_job(JOB)
    for number in range(200):
        store.add(trial(series=f"run-{number}"))
    lessons = gather(store, made_bank)
    judged, learned = to_judge(lessons), to_learn(lessons)
    assert len(judged.trials) + len(learned.trials) == len(lessons.trials)
    own = [t for t in judged.trials if t.job_hash == JOB.hash]
    assert 30 < len(own) < 70
    assert JOB.hash in learned.jobs
    bank = [{job.base for key, job in some.jobs.items() if key != JOB.hash} for some in (judged, learned)]
    assert not bank[0] & bank[1]
    store.add(trial(series="another"))
    more = to_judge(gather(store, made_bank))
    assert set(map(repr, judged.trials)) <= set(map(repr, more.trials))  # for all time


def test_the_digest_tells_data_apart_and_not_its_order(store: TrialStore, made_bank: Bank) -> None:
    whole = gather(None, made_bank)
    assert whole._replace(trials=whole.trials[::-1]).digest == whole.digest
    assert whole._replace(trials=whole.trials[1:]).digest != whole.digest
    assert gather(store, made_bank).digest == whole.digest


def test_some_base_shapes_of_every_family_are_held_out_for_good() -> None:
    held_out = [base for base in BASES if is_held_out(base.name)]
    assert {base.family for base in held_out} == {base.family for base in BASES}
    assert len(held_out) < len(BASES) / 2
    assert is_held_out("rm1")
    assert not is_held_out("din")


def test_what_was_measured_before_a_job_got_slower_for_good_is_left_out(store: TrialStore) -> None:
    job = Job(name="ctr")
    noise = np.random.default_rng(0).standard_normal(40)
    rates = [(1000.0 if number < 25 else 400.0) * float(np.exp(0.08 * noise[number])) for number in range(40)]
    store.history.add([run_of(job, number, rate) for number, rate in enumerate(rates)])
    lessons = gather(store, None)
    assert len(lessons.trials) == 15
    assert max(trial.throughput or 0.0 for trial in lessons.trials) < 600
    assert lessons.passed_over == {"measured before the job's speed changed for good": 25}
