"""The data that a retraining learns from: the bank, trials in the store, and finished runs, by job and base shape."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sizewright.datasets.runs.finished_job import FinishedJob, Segment
from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trial_bank.shapes import BankJob, bank_jobs
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.retraining.shifts import since_last_shift
from sizewright.spec import Job

_HELD_OUT_ONE_IN = 4


class Lessons(NamedTuple):
    """Trials with their jobs, by hash, and the number of trials and runs that were passed over, by reason."""

    trials: list[Trial]
    jobs: dict[str, BankJob]
    passed_over: dict[str, int]
    own_series: frozenset[str | None] = frozenset()
    """Series of trials that are not from the bank."""

    def only(self, keep: Callable[[BankJob], bool]) -> Lessons:
        """Return the lessons of some jobs."""
        jobs = {key: job for key, job in self.jobs.items() if keep(job)}
        return self._replace(trials=[t for t in self.trials if t.job_hash in jobs], jobs=jobs)

    def where(self, keep: Callable[[Trial, BankJob], bool]) -> Lessons:
        """Return some trials, and their jobs."""
        trials = [t for t in self.trials if t.job_hash in self.jobs and keep(t, self.jobs[str(t.job_hash)])]
        hashes = {t.job_hash for t in trials}
        return self._replace(trials=trials, jobs={key: job for key, job in self.jobs.items() if key in hashes})

    @property
    def digest(self) -> str:
        """SHA-256 of all trials and jobs, independent of their order."""
        lines = sorted(trial.model_dump_json(exclude={"host"}) for trial in self.trials)
        lines += sorted(f"{key} {job.base} {job.table_scale}" for key, job in self.jobs.items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def gather(store: TrialStore | None, bank: Bank | None) -> Lessons:
    """Return the trials that can be learned from.

    Trials without a throughput, or of jobs without a description or with their own code, and runs that ran out of
    memory are passed over.
    """
    trials = list(bank.trials) if bank else []
    jobs = dict(bank.jobs) if bank else {}
    passed_over: Counter[str] = Counter()
    if store is not None:
        described = store.history.jobs()
        by_job: dict[str, list[Trial]] = {}
        for trial in (*store.trials(), *_trials_of_runs(store.history.finished(), passed_over)):
            if reason := _reason_to_pass_over(trial, described):
                passed_over[reason] += 1
            else:
                by_job.setdefault(str(trial.job_hash), []).append(trial)
        for key, of_job in by_job.items():
            kept = since_last_shift(of_job)
            if len(kept) < len(of_job):
                passed_over["measured before the job's speed changed for good"] += len(of_job) - len(kept)
            table_scale = float(np.median([trial.table_scale or 1.0 for trial in kept]))
            jobs[key] = BankJob(base_of(described[key]), described[key], table_scale)
            trials += kept
    return Lessons(
        trials,
        jobs,
        {reason: count for reason, count in passed_over.items() if count},
        frozenset(t.series for t in trials[len(bank.trials) if bank else 0 :]),
    )


def base_of(job: Job) -> str:
    """Return the base shape of a job of the bank; other jobs are grouped by family and number of tables."""
    return _bases().get(job.hash) or f"{job.model.family}-{job.model.tables.count}"


def is_held_out(base: str) -> bool:
    """Return whether a base shape is held out for judging. It depends on the name alone, so it never changes."""
    return _is_one_in_four(f"kept {base}")


def to_learn(lessons: Lessons) -> Lessons:
    """Return the lessons that are not `to_judge`."""
    return lessons.where(lambda trial, job: not _is_to_judge(trial, job, lessons.own_series))


def to_judge(lessons: Lessons) -> Lessons:
    """Return the lessons on which champion and challenger are compared; no twin ever learns from them.

    Of the bank these are whole base shapes. Of the user's own jobs, which come again and again, they are one trial or
    run in four.
    """
    return lessons.where(lambda trial, job: _is_to_judge(trial, job, lessons.own_series))


def _is_to_judge(trial: Trial, job: BankJob, own_series: frozenset[str | None]) -> bool:
    if trial.series not in own_series:
        return is_held_out(job.base)
    identity = f"{trial.job_hash} {trial.series} {trial.started_at}"
    allocation = f"{trial.workers} {trial.ps} {trial.worker_cpu} {trial.ps_cpu} {trial.batch_size}"
    return _is_one_in_four(f"{identity} {allocation}")


def _is_one_in_four(text: str) -> bool:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % _HELD_OUT_ONE_IN == 0


@lru_cache(1)
def _bases() -> dict[str, str]:
    return {b.job.hash: b.base for b in bank_jobs()}


def _reason_to_pass_over(trial: Trial, described: dict[str, Job]) -> str:
    job = described.get(str(trial.job_hash))
    if not trial.usable:
        return f"{trial.status} or without throughput"
    if job is None:
        return "of a job without a description"
    if job.command or not trial.ps or job.training.device != "cpu" or job.training.embedding_device != "cpu":
        return "of a job that the prior cannot predict"
    return ""


def _trials_of_runs(runs: list[FinishedJob], passed_over: Counter[str]) -> Iterator[Trial]:
    for run in runs:
        if run.job is None:
            passed_over["runs of a job without a description"] += 1
        elif run.ran_out_of_memory:
            passed_over["runs that ran out of memory"] += 1
        else:
            measured = [segment for segment in run.stretches if segment.throughput]
            limited = [segment for segment in measured if segment.is_cpu_limited]
            usable = [segment for segment in limited if segment.has_reliable_throughput]
            passed_over["segments of runs that were not limited to their cores"] += len(measured) - len(limited)
            passed_over["segments of runs that were too short"] += len(limited) - len(usable)
            passed_over["runs without a throughput"] += not measured
            yield from (_trial(run, run.job, segment, len(measured) == 1) for segment in usable)


def _trial(run: FinishedJob, job: Job, segment: Segment, is_only: bool) -> Trial:
    """Return a segment as a trial. CPU use is known of a run as a whole, so only where it has a single segment."""
    allocation = segment.allocation
    workers, ps = allocation.replicas("worker"), allocation.replicas("ps")
    return Trial(
        workers=workers,
        ps=ps,
        worker_cpu=allocation.cores("worker") / workers,
        ps_cpu=allocation.cores("ps") / ps if ps else None,
        batch_size=allocation.batch_size,
        sync=job.training.sync,
        throughput=segment.throughput,
        duration_s=segment.duration_s,
        worker_cpu_used=run.worker.cpu_used if is_only else None,
        ps_cpu_used=run.ps.cpu_used if is_only else None,
        job=run.name,
        job_hash=run.key,
        series=f"run-{run.id}",
        started_at=run.started_at,
    )
