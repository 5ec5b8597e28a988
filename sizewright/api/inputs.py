"""What the public functions are given: jobs, stores, clusters, and what a store tells of a job."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from sizewright.api._records import ClusterLike, JobLike, StoreLike, TrialsLike, as_record, as_trials
from sizewright.datasets.database import is_in_memory
from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial, Trials
from sizewright.errors import InputError, JobError, NoTrialsError, StoreError
from sizewright.spec import Cluster, Job
from sizewright.spec._paths import absolute
from sizewright.spec.job import MOST_SAMPLES
from sizewright.spec.units import parse_count

if TYPE_CHECKING:
    from sizewright.datasets.click_logs import ReadReport
    from sizewright.datasets.finished import FinishedJob

DEFAULT_STORE = "sqlite:///sizewright.db"
STORE_VARIABLE = "SIZEWRIGHT_STORE"
TRIAL_SHARE_OF_CORES = 0.8
"""The rest is for Ray, this process and the host itself."""
_CHECKED_ROWS = 100_000


def load_job(
    job: JobLike,
    data: str | Path | None = None,
    *,
    samples: float | str | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
) -> Job:
    """A job as it is, of a mapping, or read from its file; with `data`, over that click log instead of its own data.

    So many `samples`, an `objective` and a `deadline`, such as "4h", take the place of the job's own. Raises JobError
    for the job, ClickLogError for the log, and InputError for data that is no path.
    """
    loaded = as_record(Job, job, "job")
    if data is not None:
        if not isinstance(data, str | os.PathLike):
            raise InputError(f"Data is of type {type(data).__name__}.", "Pass the path of a click log.")
        if loaded.command:
            raise JobError(f"{loaded.name} runs a command, which reads data of its own.", "Leave out data.")
        from sizewright.datasets.source import open_log

        loaded = loaded.with_data(data)
        open_log(loaded)
    if samples is not None:
        loaded = loaded.with_samples(_count_of_samples(samples))
    if objective is not None or deadline is not None:
        loaded = loaded.with_objective(objective, None if deadline is None else str(deadline))
    return loaded


def _count_of_samples(given: object) -> int:
    """As files have it: 45_840_617, 1e6, "1M". Raises JobError."""
    try:
        count = parse_count(given.item() if hasattr(given, "item") else given)
    except ValueError as error:
        raise JobError(f"samples: {error}.", "Give a whole number from 1.") from None
    if not 1 <= count <= MOST_SAMPLES:
        raise JobError(f"{given!r} is no number of samples.", f"Give a whole number from 1 to {MOST_SAMPLES:g}.")
    return count


def open_store(url: str | Path | None = None, *, create: bool = False) -> TrialStore:
    """The store at `url`, else at $SIZEWRIGHT_STORE, else `sizewright.db` in the working folder.

    Raises NoTrialsError where there is none and it is not to be made (`create`), StoreError for one that cannot be
    used.
    """
    url = _store_url(url)
    if is_in_memory(url):
        raise StoreError(
            f"{url} is in memory, and what is kept there would be lost.", "Name a file as the store, such as trials.db."
        )
    return TrialStore(url, create=create)


def store_path(url: str | Path | None = None) -> Path:
    """Of the file of a store that is one."""
    return Path(absolute(_store_url(url).removeprefix("sqlite:///")))


def _store_url(url: str | Path | None) -> str:
    if url is not None and not isinstance(url, str | os.PathLike):
        raise StoreError(
            f"The store is of type {type(url).__name__}.", "Pass a path, an SQLAlchemy URL, or an open TrialStore."
        )
    return str(url or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)


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


def assign_job(trials: TrialsLike, job: JobLike) -> Trials:
    """The same trials as measurements of `job`; batch size and mode are taken from it where a row has none."""
    job = load_job(job)
    key = job.hash
    return Trials(
        trial.model_copy(
            update={
                "job": job.name,
                "job_hash": key,
                "batch_size": trial.batch_size or job.training.batch_size,
                "sync": trial.sync or job.training.sync,
            }
        )
        for trial in as_trials(trials, has_ps=job.has_ps)
    )


def its_store(store: StoreLike | None, *, create: bool) -> AbstractContextManager[TrialStore]:
    """A caller's own store stays open."""
    return nullcontext(store) if isinstance(store, TrialStore) else open_store(store, create=create)


def evidence_of(job: Job, store: StoreLike | None, *, needed: bool) -> tuple[list[Trial], list[FinishedJob]]:
    """Its trials in the store; runs of all jobs, or of it alone where its trials are needed since nothing else tells
    of it. None where there is no store and they are not needed."""
    try:
        with its_store(store, create=False) as opened:
            return opened.trials(job=job), opened.history.finished(job=job if needed else None)
    except NoTrialsError:
        if needed:
            raise
        return [], []


def load_cluster(cluster: ClusterLike | None) -> Cluster | None:
    """As it is, of a mapping, or from its file."""
    return None if cluster is None else as_record(Cluster, cluster, "cluster")
