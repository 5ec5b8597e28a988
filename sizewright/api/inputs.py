"""What the public functions are given: jobs, stores, clusters, and what a store tells of a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from sizewright.datasets.database import is_in_memory
from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial
from sizewright.errors import NoTrialsError, StoreError
from sizewright.spec import Cluster, Job
from sizewright.spec._paths import absolute

if TYPE_CHECKING:
    from sizewright.datasets.click_logs import ReadReport
    from sizewright.datasets.finished import FinishedJob

DEFAULT_STORE = "sqlite:///sizewright.db"
STORE_VARIABLE = "SIZEWRIGHT_STORE"
TRIAL_SHARE_OF_CORES = 0.8
"""The rest is for Ray, this process and the host itself."""
_CHECKED_ROWS = 100_000

JobLike = Job | str | Path


def load_job(job: JobLike, data: str | None = None) -> Job:
    """A job as it is, or read from its file; with `data`, over that click log instead of its own data.

    Raises JobError for the file and ClickLogError for the log.
    """
    loaded = job if isinstance(job, Job) else Job.load(job)
    if data is None:
        return loaded
    from sizewright.datasets.source import open_log

    loaded = loaded.with_data(data)
    open_log(loaded)
    return loaded


def open_store(url: str | None = None, *, create: bool = False) -> TrialStore:
    """The store at `url`, else at $SIZEWRIGHT_STORE, else `sizewright.db` in the working folder.

    Raises NoTrialsError where there is none and it is not to be made (`create`), StoreError for one that cannot be
    used.
    """
    url = _store_url(url)
    if is_in_memory(url):
        raise StoreError(f"{url} is in memory, and what is kept there would be lost.", "Name a file: --store trials.db")
    return TrialStore(url, create=create)


def store_path(url: str | None = None) -> Path:
    """Of the file of a store that is one."""
    return Path(absolute(_store_url(url).removeprefix("sqlite:///")))


def _store_url(url: str | None) -> str:
    return url or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


def counted(job: JobLike) -> Job:
    """The job with its tables counted in its data, where it asks for that."""
    job = load_job(job)
    if job.command or job.model.tables.known:
        return job
    from sizewright.datasets.vocabulary import count_rows

    return job.with_rows(count_rows(job).rows)


def check_log(job: Job) -> ReadReport | None:
    """What the first rows of the job's click log are like; None for synthetic data.

    Raises ClickLogError when the log cannot be read or has too many broken rows.
    """
    if job.data.format == "synthetic":
        return None
    from sizewright.datasets.source import open_log

    log = open_log(job)
    for batch in log.batches(4096):
        if log.report.rows >= _CHECKED_ROWS or not len(batch.labels):
            break
    return log.report


def job_hash(job: JobLike) -> str:
    """The hash under which the store keeps the trials of a job."""
    return load_job(job).hash


def assign_job(trials: Sequence[Trial], job: JobLike) -> list[Trial]:
    """The same trials as measurements of `job`; batch size and mode are taken from it where a row has none."""
    job = load_job(job)
    return [
        trial.model_copy(
            update={
                "job": job.name,
                "job_hash": job.hash,
                "batch_size": trial.batch_size or job.training.batch_size,
                "sync": trial.sync or job.training.sync,
            }
        )
        for trial in trials
    ]


def its_store(store: str | TrialStore | None, *, create: bool) -> AbstractContextManager[TrialStore]:
    """A caller's own store stays open."""
    return nullcontext(store) if isinstance(store, TrialStore) else open_store(store, create=create)


def evidence_of(job: Job, store: str | TrialStore | None, *, needed: bool) -> tuple[list[Trial], list[FinishedJob]]:
    """Its trials in the store; runs of all jobs, or of it alone where its trials are needed since nothing else tells
    of it. None where there is no store and they are not needed."""
    try:
        with its_store(store, create=False) as opened:
            return opened.trials(job=job), opened.history.finished(job=job if needed else None)
    except NoTrialsError:
        if needed:
            raise
        return [], []


def load_cluster(cluster: Cluster | str | Path | None) -> Cluster | None:
    """As it is, or from its file."""
    return Cluster.load(cluster) if isinstance(cluster, (str, Path)) else cluster
