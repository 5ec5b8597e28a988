"""Job history: descriptions of jobs, and how each of their runs ended, beside the trials in the same database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import sqlalchemy as sa
from pydantic import ValidationError

from sizewright.datasets.database import Database, Kind, UtcDateTime, metadata
from sizewright.datasets.finished import HISTORY_SCHEMA_VERSION, FinishedJob, FinishedJobs
from sizewright.datasets.job_hashes import old_names, read_job
from sizewright.errors import StoreError
from sizewright.how_far import steps
from sizewright.spec import Job
from sizewright.spec._base import checked_json
from sizewright.spec._faults import explain_first

_jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("hash", sa.String(12), primary_key=True),
    sa.Column("description", sa.Text, nullable=False),
)
_finished = sa.Table(
    "finished_jobs",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(200), nullable=False, unique=True),
    sa.Column("job_hash", sa.String(12)),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("started_at", UtcDateTime),
    sa.Column("record", sa.Text, nullable=False),
)
_KIND = Kind("finished jobs", "history_schema_version", HISTORY_SCHEMA_VERSION, (_jobs, _finished))


class History:
    """Jobs and their runs; its tables are made when the first is kept. A `TrialStore` has one.

    Raises StoreError, in every method, when the store cannot be used.
    """

    def __init__(self, database: Database, renamed: Mapping[str, str] = MappingProxyType({})) -> None:
        self._database, self._renamed = database, renamed

    def add_job(self, job: Job) -> None:
        """Keep a description, so that trials of its hash can be learned from."""
        self._write([], [job.with_absolute_path()])

    def jobs(self) -> dict[str, Job]:
        """Descriptions by hash; those that this version cannot read any more are passed over."""
        if not self._database.holds(_KIND):
            return {}
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(_jobs.c.hash, _jobs.c.description).order_by(_jobs.c.hash)).all()
        told = [(key, read_job(text)) for key, text in rows]
        known = [job.known_as(key) for key, job in told if job is not None]
        return {job.hash: job for job in known if job is not None}

    def add(self, finished: Sequence[FinishedJob]) -> int:
        """Keep runs with their jobs, all or none; those whose id is there already stay as they are.

        The answer is how many were new.
        """
        return self._write(finished, [run.job for run in finished if run.job])

    def finished(self, *, job: Job | None = None, job_hash: str | None = None) -> FinishedJobs:
        """Runs of one job or of all, in the order in which they were kept."""
        if not self._database.holds(_KIND):
            return FinishedJobs()
        query = sa.select(_finished.c.id, _finished.c.record).order_by(_finished.c.number)
        wanted = [job_hash] if job_hash is not None else job.hashes if job is not None else None
        if wanted is not None:
            query = query.where(_finished.c.job_hash.in_(old_names(wanted, self._renamed)))
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return FinishedJobs(self._read(run, text) for run, text in steps("reading runs", rows))

    def _write(self, finished: Sequence[FinishedJob], jobs: Sequence[Job]) -> int:
        if not self._database.holds(_KIND):
            self._database.create(_KIND)
        with self._database.writing(alone_with=_KIND) as connection:
            described = {row.hash for row in connection.execute(sa.select(_jobs.c.hash))}
            for key, job in {job.hash: job for job in jobs if job.hash not in described}.items():
                connection.execute(_jobs.insert().values(hash=key, description=job.model_dump_json(by_alias=True)))
            there = {row.id for row in connection.execute(sa.select(_finished.c.id))}
            new = {run.id: run for run in finished if run.id not in there}
            for key, run in steps("adding runs", new.items()):
                record = run.model_dump_json()
                self._read(key, record)  # a row that nobody can read would close the whole history
                told = {"id": key, "job_hash": run.key, "name": run.name, "started_at": run.started_at}
                connection.execute(_finished.insert().values(told | {"record": record}))
        return len(new)

    def _read(self, run: str, text: str) -> FinishedJob:
        try:
            found = checked_json(FinishedJob, text)
        except ValidationError as error:
            raise StoreError(
                f"Run {run} in {self._database.name} is no finished job: {explain_first(error)}.",
                "Correct or delete that row.",
            ) from None
        today = self._renamed.get(found.job_hash or "")
        return found.model_copy(update={"job_hash": today}) if today else found
