"""The trial store: every measurement, in SQLite or in any other database that SQLAlchemy supports."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, get_args

import sqlalchemy as sa
from pydantic import ValidationError

from sizewright.datasets._columns import COLUMNS
from sizewright.datasets.files.database import Database, RecordKind, UtcDateTime, metadata, no_trials
from sizewright.datasets.runs.history import History
from sizewright.datasets.trials.job_hashes import renew_hashes, stored_hashes
from sizewright.datasets.trials.trial import TRIAL_SCHEMA_VERSION, Trial, Trials, TrialStatus
from sizewright.errors import StoreError
from sizewright.spec import Job
from sizewright.spec._base import validate
from sizewright.spec._faults import explain_first
from sizewright.task_progress import steps

_TYPES: dict[type, sa.types.TypeEngine[Any]] = {
    int: sa.BigInteger(),
    float: sa.Double(),
    str: sa.Text(),
    datetime: UtcDateTime(),
}
_trials = sa.Table(
    "trials",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    *(sa.Column(name, _TYPES[kind], nullable=True) for name, kind in COLUMNS.items()),
)
_RECORD_KIND = RecordKind("trials", "trial_schema_version", TRIAL_SCHEMA_VERSION, (_trials,))


class MeasuredJob(NamedTuple):
    """The number of trials of a job; its hash is None for trials without a job."""

    job: str | None
    job_hash: str | None
    trials: int


class TrialStore:
    """Trials of any number of jobs, in the order they were added, and, in `history`, the jobs and their runs.

    `url` is an SQLAlchemy URL or the path of an SQLite file. With `create=False` the store must exist.
    Raises StoreError, here and in every method, when the store cannot be used.
    """

    def __init__(self, url: str | Path = "sqlite:///sizewright.db", *, create: bool = True) -> None:
        self._database = Database(url, create=create)
        self.name = self._database.name
        try:
            if not self._database.has_tables(_RECORD_KIND):
                if not create:
                    raise no_trials(self.name)
                self._database.create(_RECORD_KIND)
            self._renamed = renew_hashes(self._database, _RECORD_KIND)
        except BaseException:
            self.close()
            raise
        self.history = History(self._database, self._renamed)

    def add(self, trial: Trial) -> int:
        """Store one trial on disk, and return its row id."""
        with self._database.transaction() as connection:
            result = connection.execute(_trials.insert().values(trial.model_dump()))
            return int(result.inserted_primary_key[0])  # type: ignore[index]

    def add_all(self, trials: Sequence[Trial]) -> None:
        """Store several trials, all or none."""
        with self._database.transaction() as connection:
            for trial in steps("adding trials", trials):
                connection.execute(_trials.insert().values(trial.model_dump()))

    def trials(
        self,
        *,
        job: Job | None = None,
        job_hash: str | None = None,
        series: str | None = None,
        host: str | None = None,
    ) -> Trials:
        """Return the trials that match every given argument, oldest first.

        The trials of a `job` include those stored under an older hash of it; they are returned with its present hash.
        """
        query = _trials.select().order_by(_trials.c.id)
        if job is not None:
            query = query.where(_trials.c.job_hash.in_(stored_hashes(job.hashes, self._renamed)))
        for name, value in {"job_hash": job_hash, "series": series, "host": host}.items():
            if value is not None:
                names = stored_hashes([value], self._renamed) if name == "job_hash" else [value]
                query = query.where(_trials.c[name].in_(names))
        with self._database.connect() as connection:
            trials = [self._trial(dict(row)) for row in connection.execute(query).mappings()]
        renamed = self._renamed if job is None else dict.fromkeys(stored_hashes(job.hashes, self._renamed), job.hash)
        return Trials(
            trial.model_copy(update={"job_hash": renamed[trial.job_hash]}) if trial.job_hash in renamed else trial
            for trial in trials
        )

    def measured_jobs(self) -> list[MeasuredJob]:
        """Return the jobs that have trials, those with most trials first."""
        columns = (_trials.c.job, _trials.c.job_hash)
        query = sa.select(*columns, sa.func.count()).group_by(*columns)
        jobs: dict[str | None, MeasuredJob] = {}
        with self._database.connect() as connection:
            for name, stored_hash, count in connection.execute(query):
                job_hash = self._renamed.get(stored_hash, stored_hash)
                earlier = jobs[job_hash].trials if job_hash in jobs else 0
                jobs[job_hash] = MeasuredJob(name, job_hash, count + earlier)
        return sorted(jobs.values(), key=lambda job: -job.trials)

    def count(self) -> int:
        """Return the number of trials of any status."""
        with self._database.connect() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(_trials)).scalar_one())

    def mark(self, series: str, status: TrialStatus | str, message: str) -> int:
        """Change the status of the `ok` trials of a series, with the reason, and return their number."""
        if status not in get_args(TrialStatus):
            known = ", ".join(get_args(TrialStatus))
            raise StoreError(f"{status!r} is not a status of a trial.", f"Use one of: {known}.")
        chosen = (_trials.c.series == series) & (_trials.c.status == "ok")
        with self._database.transaction() as connection:
            return connection.execute(_trials.update().where(chosen).values(status=status, message=message)).rowcount

    def widen(self, series: str, relative_se: float) -> None:
        """Raise the standard errors of a series to at least `relative_se`, a share of the throughput."""
        floor = relative_se * _trials.c.throughput
        error = sa.func.coalesce(_trials.c.throughput_se, 0.0)
        wider = sa.case((error < floor, floor), else_=error)
        chosen = (_trials.c.series == series) & _trials.c.throughput.is_not(None)
        with self._database.transaction() as connection:
            connection.execute(_trials.update().where(chosen).values(throughput_se=wider))

    def exclusively(self, work: str) -> AbstractContextManager[None]:
        """Hold the lock of this work on the store. Raises StoreError when another process holds it."""
        return self._database.exclusively(work)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _trial(self, row: dict[str, Any]) -> Trial:
        number = row.pop("id")
        try:
            return validate(Trial, row)
        except ValidationError as error:
            raise StoreError(
                f"Row {number} of {self.name} is not a trial: {explain_first(error)}.", "Correct or delete that row."
            ) from None
