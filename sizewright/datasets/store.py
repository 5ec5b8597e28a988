"""The trial store: every measurement, kept in SQLite or in any other database that SQLAlchemy speaks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, get_args

import sqlalchemy as sa
from pydantic import ValidationError

from sizewright.datasets._columns import COLUMNS
from sizewright.datasets.database import Database, Kind, UtcDateTime, metadata, no_trials
from sizewright.datasets.history import History
from sizewright.datasets.job_hashes import old_names, renew_hashes
from sizewright.datasets.trials import TRIAL_SCHEMA_VERSION, Trial, Trials, TrialStatus
from sizewright.errors import StoreError
from sizewright.how_far import steps
from sizewright.spec import Job
from sizewright.spec._base import checked
from sizewright.spec._faults import explain_first

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
_KIND = Kind("trials", "trial_schema_version", TRIAL_SCHEMA_VERSION, (_trials,))


class MeasuredJob(NamedTuple):
    """How many trials there are of a job; its hash is None for trials that were assigned to none."""

    job: str | None
    job_hash: str | None
    trials: int


class TrialStore:
    """Trials of any number of jobs, in the order they were added; beside them, in `history`, the jobs themselves.

    `url` is an SQLAlchemy URL or the path of an SQLite file. With `create=False` the store must exist.
    Raises StoreError, here and in every method, when the store cannot be used.
    """

    def __init__(self, url: str | Path = "sqlite:///sizewright.db", *, create: bool = True) -> None:
        self._database = Database(url, create=create)
        self.name = self._database.name
        try:
            if not self._database.holds(_KIND):
                if not create:
                    raise no_trials(self.name)
                self._database.create(_KIND)
            self._renamed = renew_hashes(self._database, _KIND)
        except BaseException:
            self.close()
            raise
        self.history = History(self._database, self._renamed)

    def add(self, trial: Trial) -> int:
        """Keep one trial, on disk when this returns; the answer is its row id."""
        with self._database.writing() as connection:
            result = connection.execute(_trials.insert().values(trial.model_dump()))
            return int(result.inserted_primary_key[0])  # type: ignore[index]

    def add_all(self, trials: Sequence[Trial]) -> None:
        """Keep several trials, all or none."""
        with self._database.writing() as connection:
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
        """The trials that match every argument given, oldest first.

        Those of a `job` are found, and told, also where they are kept under an older hash of it.
        """
        query = _trials.select().order_by(_trials.c.id)
        if job is not None:
            query = query.where(_trials.c.job_hash.in_(old_names(job.hashes, self._renamed)))
        for name, value in {"job_hash": job_hash, "series": series, "host": host}.items():
            if value is not None:
                names = old_names([value], self._renamed) if name == "job_hash" else [value]
                query = query.where(_trials.c[name].in_(names))
        with self._database.reading() as connection:
            found = [self._trial(dict(row)) for row in connection.execute(query).mappings()]
        today = self._renamed if job is None else dict.fromkeys(old_names(job.hashes, self._renamed), job.hash)
        return Trials(
            trial.model_copy(update={"job_hash": today[trial.job_hash]}) if trial.job_hash in today else trial
            for trial in found
        )

    def measured_jobs(self) -> list[MeasuredJob]:
        """The jobs of which there are trials, those with most trials first."""
        columns = (_trials.c.job, _trials.c.job_hash)
        query = sa.select(*columns, sa.func.count()).group_by(*columns)
        found: dict[str | None, MeasuredJob] = {}
        with self._database.reading() as connection:
            for name, key, count in connection.execute(query):
                today = self._renamed.get(key, key)
                before = found.get(today)
                found[today] = MeasuredJob(name, today, count + (before.trials if before else 0))
        return sorted(found.values(), key=lambda job: -job.trials)

    def count(self) -> int:
        """Number of trials of any status."""
        with self._database.reading() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(_trials)).scalar_one())

    def mark(self, series: str, status: TrialStatus | str, message: str) -> int:
        """Give the `ok` trials of a series another status and its reason; the answer is how many there were."""
        if status not in get_args(TrialStatus):
            raise StoreError(f"{status!r} is no status of a trial.", f"Use one of: {', '.join(get_args(TrialStatus))}.")
        chosen = (_trials.c.series == series) & (_trials.c.status == "ok")
        with self._database.writing() as connection:
            return connection.execute(_trials.update().where(chosen).values(status=status, message=message)).rowcount

    def widen(self, series: str, relative_se: float) -> None:
        """Raise the standard errors of a series to at least `relative_se`, a share of the throughput."""
        floor = relative_se * _trials.c.throughput
        error = sa.func.coalesce(_trials.c.throughput_se, 0.0)
        wider = sa.case((error < floor, floor), else_=error)
        chosen = (_trials.c.series == series) & _trials.c.throughput.is_not(None)
        with self._database.writing() as connection:
            connection.execute(_trials.update().where(chosen).values(throughput_se=wider))

    def exclusively(self, work: str) -> AbstractContextManager[None]:
        """While it lasts, no other process does this work on this store. Raises StoreError when one does already."""
        return self._database.exclusively(work)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _trial(self, row: dict[str, Any]) -> Trial:
        number = row.pop("id")
        try:
            return checked(Trial, row)
        except ValidationError as error:
            raise StoreError(
                f"Row {number} of {self.name} is not a trial: {explain_first(error)}.", "Correct or delete that row."
            ) from None
