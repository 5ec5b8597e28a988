from __future__ import annotations

import numpy as np

from sizewright.datasets.runs.finished_job import Segment
from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trial_bank.shapes import BASES
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.retraining.lessons import gather, is_held_out, to_judge, to_learn
from sizewright.spec import Allocation, Failure, Job, Model, Outcome, Tables
from sizewright.spec.command import Command
from tests.helpers.finished_jobs import ALLOCATION, run_of

JOB = Job(name="ctr", model=Model(tables=Tables(count=19, rows=1000, dim=8)))


def trial(**changes: object) -> Trial:
    defaults = {"workers": 1, "ps": 1, "throughput": 100.0, "job_hash": JOB.hash, "worker_cpu": 1.0, "ps_cpu": 1.0}
    return Trial.model_validate(defaults | changes)


def test_trials_of_described_jobs_are_learned_from(store: TrialStore, made_bank: Bank) -> None:
    store.history.add_job(JOB)
    store.add(trial())
    lessons = gather(store, made_bank)
    assert len(lessons.trials) == len(made_bank.trials) + 1
    assert lessons.jobs[JOB.hash].base == "dlrm-19"
    assert lessons.passed_over == {}


def test_unusable_trials_are_counted_by_reason(store: TrialStore) -> None:
    command_job = Job(command=Command(run="python train.py"))
    for job in (JOB, command_job):
        store.history.add_job(job)
    for unusable in (
        trial(throughput=None, status="failed"),
        trial(status="oom", throughput=None),
        trial(status="void"),
        trial(job_hash="nobody"),
        trial(job_hash=command_job.hash),
        trial(ps=0, ps_cpu=None),
    ):
        store.add(unusable)
    lessons = gather(store, None)
    assert lessons.trials == []
    assert sum(lessons.passed_over.values()) == 6
    assert lessons.passed_over["of a job without a description"] == 1
    assert lessons.passed_over["of a job that the prior cannot predict"] == 2


def test_each_long_segment_of_a_run_is_a_trial(store: TrialStore) -> None:
    two = (
        Segment(at_s=0, duration_s=50, allocation=ALLOCATION, samples=50_000),
        Segment(at_s=50, duration_s=40, allocation=Allocation.of(4, 1, 0.5, 0.25, 512), samples=80_000),
        Segment(at_s=90, duration_s=5, allocation=ALLOCATION, samples=9_000),
    )
    store.history.add([run_of(JOB, stretches=two)])
    lessons = gather(store, None)
    assert [(t.workers, t.throughput, t.worker_cpu, t.ps_cpu) for t in lessons.trials] == [
        (2, 1000.0, 0.5, 0.25),
        (4, 2000.0, 0.5, 0.25),
    ]
    assert lessons.passed_over == {"segments of runs that were too short": 1}


def test_runs_that_ran_out_of_memory_are_skipped(store: TrialStore) -> None:
    oom = Outcome(status="failed", failures=(Failure(at_s=1.0, replica="ps-0", cause="oom"),))
    store.history.add([run_of(JOB, 1, outcome=oom), run_of(None, 2)])
    lessons = gather(store, None)
    assert lessons.trials == []
    assert lessons.passed_over["runs that ran out of memory"] == 1
    assert lessons.passed_over["runs of a job without a description"] == 1


def test_one_in_four_own_trials_and_entire_base_shapes_are_held_out(store: TrialStore, made_bank: Bank) -> None:
    store.history.add_job(JOB)
    for number in range(200):
        store.add(trial(series=f"run-{number}"))
    lessons = gather(store, made_bank)
    judged, learned = to_judge(lessons), to_learn(lessons)
    assert len(judged.trials) + len(learned.trials) == len(lessons.trials)
    own_trials = [t for t in judged.trials if t.job_hash == JOB.hash]
    assert 30 < len(own_trials) < 70
    assert JOB.hash in learned.jobs
    bank = [{job.base for key, job in split.jobs.items() if key != JOB.hash} for split in (judged, learned)]
    assert not bank[0] & bank[1]
    store.add(trial(series="another"))
    more = to_judge(gather(store, made_bank))
    assert set(map(repr, judged.trials)) <= set(map(repr, more.trials))  # the split never changes


def test_digest_depends_on_the_data_and_not_on_its_order(store: TrialStore, made_bank: Bank) -> None:
    lessons = gather(None, made_bank)
    assert lessons._replace(trials=lessons.trials[::-1]).digest == lessons.digest
    assert lessons._replace(trials=lessons.trials[1:]).digest != lessons.digest
    assert gather(store, made_bank).digest == lessons.digest


def test_some_base_shapes_of_every_family_are_held_out() -> None:
    held_out = [base for base in BASES if is_held_out(base.name)]
    assert {base.family for base in held_out} == {base.family for base in BASES}
    assert len(held_out) < len(BASES) / 2
    assert is_held_out("rm1")
    assert not is_held_out("din")


def test_trials_before_a_lasting_slowdown_are_left_out(store: TrialStore) -> None:
    job = Job(name="ctr")
    noise = np.random.default_rng(0).standard_normal(40)
    rates = [(1000.0 if number < 25 else 400.0) * float(np.exp(0.08 * noise[number])) for number in range(40)]
    store.history.add([run_of(job, number, rate) for number, rate in enumerate(rates)])
    lessons = gather(store, None)
    assert len(lessons.trials) == 15
    assert max(trial.throughput or 0.0 for trial in lessons.trials) < 600
    assert lessons.passed_over == {"measured before the job's speed changed for good": 25}
