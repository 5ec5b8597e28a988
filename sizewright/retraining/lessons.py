"""What there is to learn from: the bank, trials in the store, and runs that ended, each job with its base shape."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sizewright.datasets.bank.files import Bank
from sizewright.datasets.bank.shapes import BankJob, bank_jobs
from sizewright.datasets.finished import FinishedJob, Stretch
from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial
from sizewright.retraining.shifts import since_last_shift
from sizewright.spec import Job

_HELD_OUT_OF = 4


class Lessons(NamedTuple):
    """Trials with the jobs that they measured, by hash, and how many were passed over for which reason."""

    trials: list[Trial]
    jobs: dict[str, BankJob]
    passed_over: dict[str, int]
    own: frozenset[str | None] = frozenset()
    """Series of trials that are not the bank's."""

    def only(self, keep: Callable[[BankJob], bool]) -> Lessons:
        """Those of some jobs."""
        jobs = {key: job for key, job in self.jobs.items() if keep(job)}
        return self._replace(trials=[t for t in self.trials if t.job_hash in jobs], jobs=jobs)

    def where(self, keep: Callable[[Trial, BankJob], bool]) -> Lessons:
        """Some trials, and the jobs of these."""
        trials = [t for t in self.trials if t.job_hash in self.jobs and keep(t, self.jobs[str(t.job_hash)])]
        found = {t.job_hash for t in trials}
        return self._replace(trials=trials, jobs={key: job for key, job in self.jobs.items() if key in found})

    @property
    def digest(self) -> str:
        """SHA-256 of all trials and jobs, whatever their order."""
        lines = sorted(trial.model_dump_json(exclude={"host"}) for trial in self.trials)
        lines += sorted(f"{key} {job.base} {job.table_scale}" for key, job in self.jobs.items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def gather(store: TrialStore | None, bank: Bank | None) -> Lessons:
    """All that can be learned from. Trials without a throughput, of jobs that nobody described or that run their own
    code, and runs that memory ended are passed over."""
    trials = list(bank.trials) if bank else []
    jobs = dict(bank.jobs) if bank else {}
    passed_over: Counter[str] = Counter()
    if store is not None:
        described = store.history.jobs()
        found = [*store.trials(), *_trials_of_runs(store.history.finished(), passed_over)]
        mine = []
        for trial in found:
            why = _unfit(trial, described)
            passed_over.update([why] if why else [])
            mine += [] if why else [trial]
        for key in dict.fromkeys(str(trial.job_hash) for trial in mine):
            told = [trial for trial in mine if trial.job_hash == key]
            kept = since_last_shift(told)
            if len(kept) < len(told):
                passed_over["measured before the job's speed changed for good"] += len(told) - len(kept)
            jobs[key] = BankJob(base_of(described[key]), described[key], _usual_scale(kept))
            trials += kept
    return Lessons(
        trials,
        jobs,
        {why: count for why, count in passed_over.items() if count},
        frozenset(t.series for t in trials[len(bank.trials) if bank else 0 :]),
    )


def base_of(job: Job) -> str:
    """The base shape of which a job of the bank is a variation; own jobs have one by family and number of tables."""
    return _bases().get(job.hash) or f"{job.model.family}-{job.model.tables.count}"


def is_held_out(base: str) -> bool:
    """Whether a base shape is for judging only. It depends on the name alone, so that it stays so for all time."""
    return _in_four(f"kept {base}")


def to_learn(lessons: Lessons) -> Lessons:
    """What is not `to_judge`."""
    return lessons.where(lambda trial, job: not _is_to_judge(trial, job, lessons.own))


def to_judge(lessons: Lessons) -> Lessons:
    """What champion and challenger are compared on, and neither may have learned, now or ever: of the bank, whole base
    shapes; of what one measured oneself, since such jobs come again and again, one trial or run in four."""
    return lessons.where(lambda trial, job: _is_to_judge(trial, job, lessons.own))


def _is_to_judge(trial: Trial, job: BankJob, own: frozenset[str | None]) -> bool:
    if trial.series not in own:
        return is_held_out(job.base)
    a = trial
    return _in_four(
        f"{a.job_hash} {a.series} {a.started_at} {a.workers} {a.ps} {a.worker_cpu} {a.ps_cpu} {a.batch_size}"
    )


def _in_four(text: str) -> bool:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % _HELD_OUT_OF == 0


@lru_cache(1)
def _bases() -> dict[str, str]:
    return {b.job.hash: b.base for b in bank_jobs()}


def _unfit(trial: Trial, described: dict[str, Job]) -> str:
    job = described.get(str(trial.job_hash))
    if not trial.usable:
        return f"{trial.status} or without throughput"
    if job is None:
        return "of a job that is not described"
    if job.command or not trial.ps or job.training.device != "cpu" or job.training.embedding_device != "cpu":
        return "of a job that the prior tells nothing of"
    return ""


def _trials_of_runs(runs: list[FinishedJob], passed_over: Counter[str]) -> Iterator[Trial]:
    for run in runs:
        if run.job is None:
            passed_over["runs of a job that is not described"] += 1
        elif run.ran_out_of_memory:
            passed_over["runs that memory ended"] += 1
        else:
            told = [stretch for stretch in run.stretches if stretch.throughput]
            held = [stretch for stretch in told if stretch.is_held]
            known = [stretch for stretch in held if stretch.tells_speed]
            passed_over["stretches of runs that were not held to their cores"] += len(told) - len(held)
            passed_over["stretches of runs that were too short"] += len(held) - len(known)
            passed_over["runs that tell no throughput"] += not told
            yield from (_trial(run, run.job, stretch, len(told) == 1) for stretch in known)


def _trial(run: FinishedJob, job: Job, stretch: Stretch, alone: bool) -> Trial:
    """CPU use is told of a whole run, so only that of a single stretch is known."""
    a = stretch.allocation
    workers, ps = a.replicas("worker"), a.replicas("ps")
    return Trial(
        workers=workers, ps=ps, throughput=stretch.throughput, job=run.name, job_hash=run.key, series=f"run-{run.id}",
        worker_cpu=a.cores("worker") / workers, ps_cpu=a.cores("ps") / ps if ps else None, batch_size=a.batch_size,
        sync=job.training.sync, duration_s=stretch.duration_s, started_at=run.started_at,
        worker_cpu_used=run.worker.cpu_used if alone else None, ps_cpu_used=run.ps.cpu_used if alone else None,
    )  # fmt: skip


def _usual_scale(trials: list[Trial]) -> float:
    return float(np.median([t.table_scale or 1.0 for t in trials]))
