"""Load the inputs of the public functions: jobs, stores, clusters, and the evidence that a store holds for a job."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from sizewright.api._records import ClusterLike, JobLike, StoreLike, TrialsLike, as_record, as_trials
from sizewright.datasets.files.database import is_in_memory
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial, Trials
from sizewright.errors import InputError, JobError, NoTrialsError, StoreError
from sizewright.settings import DEFAULT_STORE, EnvironmentSettings
from sizewright.spec import Cluster, Job
from sizewright.spec._paths import absolute
from sizewright.spec.job import MAX_SAMPLES
from sizewright.spec.units import parse_count

if TYPE_CHECKING:
    from sizewright.datasets.clicks.logs import ReadReport
    from sizewright.datasets.runs.finished_job import FinishedJob

TRIAL_SHARE_OF_CORES = 0.8
"""Share of the host's cores that trials use; the rest is for Ray, this process and the host itself."""
_CHECKED_ROWS = 100_000


def load_job(
    job: JobLike,
    data: str | Path | None = None,
    *,
    samples: float | str | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
) -> Job:
    """Return a job from a record, a mapping or the path of its file.

    `data` (the path of a click log), `samples`, `objective` and `deadline`, such as "4h", override those of the job.
    Raises JobError for the job, ClickLogError for the log, and InputError when `data` is not a path.
    """
    loaded = as_record(Job, job, "job")
    if data is not None:
        if not isinstance(data, str | os.PathLike):
            raise InputError(f"data is of type {type(data).__name__}.", "Pass the path of a click log.")
        if loaded.command:
            raise JobError(f"{loaded.name} runs a command, which reads its own data.", "Leave out data.")
        from sizewright.datasets.clicks.source import open_log

        loaded = loaded.with_data(data)
        open_log(loaded)
    if samples is not None:
        loaded = loaded.with_samples(_parse_samples(samples))
    if objective is not None or deadline is not None:
        loaded = loaded.with_objective(objective, None if deadline is None else str(deadline))
    return loaded


def _parse_samples(value: object) -> int:
    """Return a number of samples, written as in files: 45_840_617, 1e6, "1M". Raises JobError."""
    try:
        count = parse_count(value.item() if hasattr(value, "item") else value)
    except ValueError as error:
        raise JobError(f"samples: {error}.", "Give a whole number from 1.") from None
    if not 1 <= count <= MAX_SAMPLES:
        raise JobError(
            f"samples must lie between 1 and {MAX_SAMPLES:g}, got {value!r}.", "Give a whole number in this range."
        )
    return count


def open_store(url: str | Path | None = None, *, create: bool = False) -> TrialStore:
    """Open the store at `url`, else at $SIZEWRIGHT_STORE, else `sizewright.db` in the working folder.

    Raises NoTrialsError when the store does not exist, unless `create`, and StoreError when it cannot be used.
    """
    url = _store_url(url)
    if is_in_memory(url):
        raise StoreError(
            f"{url} is an in-memory database, which is lost when the process ends.",
            "Name a file as the store, such as trials.db.",
        )
    return TrialStore(url, create=create)


def store_path(url: str | Path | None = None) -> Path:
    """Return the path of the file of an SQLite store."""
    return Path(absolute(_store_url(url).removeprefix("sqlite:///")))


def _store_url(url: str | Path | None) -> str:
    if url is not None and not isinstance(url, str | os.PathLike):
        raise StoreError(
            f"The store is of type {type(url).__name__}.", "Pass a path, an SQLAlchemy URL, or an open TrialStore."
        )
    return str(url or EnvironmentSettings.from_environment().store or DEFAULT_STORE)


def counted_job(job: JobLike) -> Job:
    """Return the job; where its row counts are `from-data`, they are counted in its click log."""
    job = load_job(job)
    if job.command or job.model.tables.known:
        return job
    from sizewright.datasets.clicks.vocabulary import count_rows

    return job.with_rows(count_rows(job).rows)


def check_log(job: Job) -> ReadReport | None:
    """Read the first rows of the job's click log and return the read report; None for synthetic data.

    Raises ClickLogError when the log cannot be read or has too many broken rows.
    """
    if job.data.format == "synthetic":
        return None
    from sizewright.datasets.clicks.source import open_log

    log = open_log(job)
    for batch in log.batches(4096):
        if log.report.rows >= _CHECKED_ROWS or not len(batch.labels):
            break
    return log.report


def job_hash(job: JobLike) -> str:
    """Return the hash under which the store keeps the trials of a job."""
    return load_job(job).hash


def assign_job(trials: TrialsLike, job: JobLike) -> Trials:
    """Return copies of the trials that belong to `job`, which fills in a missing batch size or synchronisation mode."""
    job = load_job(job)
    key = job.hash
    return Trials(
        trial.model_copy(
            update={
                "job": job.name,
                "job_hash": key,
                "batch_size": trial.batch_size or job.batch_size_for(trial.workers),
                "sync": trial.sync or job.training.sync,
            }
        )
        for trial in as_trials(trials, has_ps=job.has_ps)
    )


def opened_store(store: StoreLike | None, *, create: bool) -> AbstractContextManager[TrialStore]:
    """Return a context with an open store; one that the caller passed stays open afterwards."""
    return nullcontext(store) if isinstance(store, TrialStore) else open_store(store, create=create)


def evidence_of(
    job: Job, store: StoreLike | None, *, required: bool = False, runs_of_all_jobs: bool = True
) -> tuple[list[Trial], list[FinishedJob]]:
    """Return the job's trials in the store, and the finished runs of all jobs, or of this job only.

    Without a store both lists are empty; raises NoTrialsError if the store is `required`.
    """
    try:
        with opened_store(store, create=False) as opened:
            return opened.trials(job=job), opened.history.finished(job=None if runs_of_all_jobs else job)
    except NoTrialsError:
        if required:
            raise
        return [], []


def load_cluster(cluster: ClusterLike | None) -> Cluster | None:
    """Return a cluster from a record, a mapping or the path of its file; None stays None."""
    return None if cluster is None else as_record(Cluster, cluster, "cluster")
