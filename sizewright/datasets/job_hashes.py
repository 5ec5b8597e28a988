"""Hashes of jobs in a store: brought up to date once, when a newer Sizewright opens it first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from sizewright.datasets.database import Database, Kind, metadata
from sizewright.errors import InputError, StoreError
from sizewright.spec import Job
from sizewright.spec._json import loads
from sizewright.spec.identity import HASH_VERSION
from sizewright.spec.units import is_count
from sizewright.spec.withheld import written_value, written_words

_VERSION = "job_hash_version"


def renew_hashes(database: Database, trials: Kind) -> dict[str, str]:
    """Rename all that is kept under hashes of an older version, in one transaction, and note the version.

    Return the old names and their new ones where the store cannot be written: its readers rename what they read. What
    belongs to a job that nobody described keeps its hash. Raises StoreError for hashes of a newer Sizewright.
    """
    with database.reading() as connection:
        if _is_up_to_date(database, connection):
            return {}
    try:
        with database.writing(alone_with=trials) as connection:
            if not _is_up_to_date(database, connection):
                _rename(connection)
                database.put(connection, _VERSION, str(HASH_VERSION))
            return {}
    except StoreError:
        with database.reading() as connection:
            return {old: job.hash for old, job in _old_jobs(connection)}


def old_names(hashes: Iterable[str], renamed: Mapping[str, str]) -> list[str]:
    """Return all names under which jobs of these hashes may be kept."""
    wanted = set(hashes)
    return [*wanted, *(old for old, new in renamed.items() if new in wanted)]


def read_job(text: str) -> Job | None:
    """A job as it was written down; None for one that this version cannot read any more."""
    try:
        return Job.model_validate_json(text)
    except InputError:
        return None


def _is_up_to_date(database: Database, connection: sa.Connection) -> bool:
    version = database.get(connection, _VERSION) or "1"
    if is_count(version) and int(version) > HASH_VERSION:
        raise StoreError(
            f"{database.name} was written by a newer Sizewright (hashes of jobs of version {version}; this one knows "
            f"up to {HASH_VERSION}).",
            "Run: pip install --upgrade sizewright",
        )
    return version == str(HASH_VERSION)


def _old_jobs(connection: sa.Connection) -> Iterator[tuple[str, Job]]:
    """Jobs that have another hash now than the one they are kept under."""
    jobs = metadata.tables["jobs"]
    if jobs.name not in sa.inspect(connection).get_table_names():
        return
    for key, text in connection.execute(sa.select(jobs.c.hash, jobs.c.description)).all():
        job = read_job(text)
        known = job.known_as(key) if job else None
        if known and known.hash != key:
            yield key, known


def _rename(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":  # older descriptions held values of variables: none stays in a free page
        connection.execute(sa.text("PRAGMA secure_delete = ON"))
    jobs, trials = metadata.tables["jobs"], metadata.tables["trials"]
    renamed = dict(_old_jobs(connection))
    for old, job in renamed.items():
        connection.execute(trials.update().where(trials.c.job_hash == old).values(job_hash=job.hash))
        connection.execute(jobs.delete().where(jobs.c.hash == old))
        there = connection.execute(sa.select(jobs.c.hash).where(jobs.c.hash == job.hash)).first()
        if there is None:  # else it was described in another folder, too
            connection.execute(jobs.insert().values(hash=job.hash, description=job.model_dump_json(by_alias=True)))
    _rename_runs(connection, {old: job.hash for old, job in renamed.items()})
    _withhold(connection)


def _rename_runs(connection: sa.Connection, renamed: dict[str, str]) -> None:
    runs = metadata.tables["finished_jobs"]
    if not renamed:
        return
    found = sa.select(runs.c.number, runs.c.job_hash, runs.c.record).where(runs.c.job_hash.in_(renamed))
    for number, old, text in connection.execute(found).all():
        record = loads(text) | {"job_hash": renamed[old]}
        values = {"job_hash": renamed[old], "record": json.dumps(record, ensure_ascii=False)}
        connection.execute(runs.update().where(runs.c.number == number).values(values))


def _withhold(connection: sa.Connection) -> None:
    """Take what older versions kept of secrets out of all rows, also of those that this version cannot read."""
    for table, key, column in (("jobs", "hash", "description"), ("finished_jobs", "number", "record")):
        rows = metadata.tables[table]
        for name, text in connection.execute(sa.select(rows.c[key], rows.c[column])).all():
            try:
                described = loads(text)
            except ValueError:
                continue
            if isinstance(described, dict) and _withheld(described):
                values = {column: json.dumps(described, ensure_ascii=False)}
                connection.execute(rows.update().where(rows.c[key] == name).values(values))


def _withheld(described: dict[str, Any]) -> bool:
    """Whether something in a job, or in the job of a run, was replaced by what is written down of it."""
    job = described.get("job") if isinstance(described.get("job"), dict) else described
    command = job.get("command") if job else None
    if not isinstance(command, dict):
        return False
    before = json.dumps(command)
    if isinstance(env := command.get("env"), dict):
        command["env"] = {name: written_value(name, str(value)) for name, value in env.items()}
    if isinstance(run := command.get("run"), list):
        command["run"] = list(written_words([str(word) for word in run]))
    return json.dumps(command) != before
