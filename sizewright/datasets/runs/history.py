"""Job history: descriptions of jobs and their finished runs, in the same database as the trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import sqlalchemy as sa
from pydantic import ValidationError

from sizewright.datasets.files.database import Database, RecordKind, UtcDateTime, metadata
from sizewright.datasets.runs.finished_job import HISTORY_SCHEMA_VERSION, FinishedJob, FinishedJobs
from sizewright.datasets.trials.job_hashes import read_job, stored_hashes
from sizewright.errors import StoreError
from sizewright.spec import Job
from sizewright.spec._base import validate_json
from sizewright.spec._faults import explain_first
from sizewright.task_progress import steps

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
_RECORD_KIND = RecordKind("finished jobs", "history_schema_version", HISTORY_SCHEMA_VERSION, (_jobs, _finished))


class History:
    """Jobs and their runs in a `TrialStore`; the tables are created when the first record is added.

    Raises StoreError, in every method, when the store cannot be used.
    """

    def __init__(self, database: Database, renamed: Mapping[str, str] = MappingProxyType({})) -> None:
        self._database, self._renamed = database, renamed

    def add_job(self, job: Job) -> None:
        """Store a description, so that models can learn from trials with its hash."""
        self._write([], [job.with_absolute_path()])

    def jobs(self) -> dict[str, Job]:
        """Return the descriptions by hash, without those that this version cannot read."""
        if not self._database.has_tables(_RECORD_KIND):
            return {}
        with self._database.connect() as connection:
            rows = connection.execute(sa.select(_jobs.c.hash, _jobs.c.description).order_by(_jobs.c.hash)).all()
        described_jobs = [(key, read_job(text)) for key, text in rows]
        known = [job.known_as(key) for key, job in described_jobs if job is not None]
        return {job.hash: job for job in known if job is not None}

    def add(self, finished: Sequence[FinishedJob]) -> int:
        """Store runs with their jobs, all or none, and return the number of new runs.

        Runs whose id is stored already stay unchanged.
        """
        return self._write(finished, [run.job for run in finished if run.job])

    def finished(self, *, job: Job | None = None, job_hash: str | None = None) -> FinishedJobs:
        """Return the runs of one job or of all jobs, in the order in which they were added."""
        if not self._database.has_tables(_RECORD_KIND):
            return FinishedJobs()
        query = sa.select(_finished.c.id, _finished.c.record).order_by(_finished.c.number)
        if job_hash is not None:
            query = query.where(_finished.c.job_hash.in_(stored_hashes([job_hash], self._renamed)))
        elif job is not None:
            query = query.where(_finished.c.job_hash.in_(stored_hashes(job.hashes, self._renamed)))
        with self._database.connect() as connection:
            rows = connection.execute(query).all()
        return FinishedJobs(self._read(run, text) for run, text in steps("reading runs", rows))

    def _write(self, finished: Sequence[FinishedJob], jobs: Sequence[Job]) -> int:
        if not self._database.has_tables(_RECORD_KIND):
            self._database.create(_RECORD_KIND)
        with self._database.transaction(lock=_RECORD_KIND) as connection:
            described = {row.hash for row in connection.execute(sa.select(_jobs.c.hash))}
            for key, job in {job.hash: job for job in jobs if job.hash not in described}.items():
                connection.execute(_jobs.insert().values(hash=key, description=job.model_dump_json(by_alias=True)))
            existing_ids = {row.id for row in connection.execute(sa.select(_finished.c.id))}
            new = {run.id: run for run in finished if run.id not in existing_ids}
            for key, run in steps("adding runs", new.items()):
                record = run.model_dump_json()
                self._read(key, record)  # one unreadable row would make the whole history unreadable
                row = {"id": key, "job_hash": run.key, "name": run.name, "started_at": run.started_at}
                connection.execute(_finished.insert().values(row | {"record": record}))
        return len(new)

    def _read(self, run: str, text: str) -> FinishedJob:
        try:
            run_record = validate_json(FinishedJob, text)
        except ValidationError as error:
            raise StoreError(
                f"Run {run} in {self._database.name} is not a valid finished job: {explain_first(error)}.",
                "Correct or delete that row.",
            ) from None
        current_hash = self._renamed.get(run_record.job_hash or "")
        return run_record.model_copy(update={"job_hash": current_hash}) if current_hash else run_record
