"""Migrate the job hashes of a store once, when a newer Sizewright opens it for the first time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from sizewright.datasets.files.database import Database, RecordKind, metadata
from sizewright.errors import InputError, StoreError
from sizewright.spec import Job
from sizewright.spec._json import loads
from sizewright.spec.identity import HASH_VERSION
from sizewright.spec.units import is_count
from sizewright.spec.withheld import written_value, written_words

_VERSION = "job_hash_version"


def renew_hashes(database: Database, trials: RecordKind) -> dict[str, str]:
    """Rename all records with hashes of an older version in one transaction, and store the new version.

    Where the store cannot be written, return the new hash by old hash, so that readers rename what they read. Records
    of a job without a description keep their hash. Raises StoreError for hashes of a newer Sizewright.
    """
    with database.connect() as connection:
        if _is_up_to_date(database, connection):
            return {}
    try:
        with database.transaction(lock=trials) as connection:
            if not _is_up_to_date(database, connection):
                _rename(connection)
                database.set_meta(connection, _VERSION, str(HASH_VERSION))
            return {}
    except StoreError:
        with database.connect() as connection:
            return {old: job.hash for old, job in _old_jobs(connection)}


def stored_hashes(hashes: Iterable[str], renamed: Mapping[str, str]) -> list[str]:
    """Return all hashes, old and new, under which records of these jobs may be stored."""
    hash_set = set(hashes)
    return [*hash_set, *(old for old, new in renamed.items() if new in hash_set)]


def read_job(text: str) -> Job | None:
    """Parse a stored description; None where this version cannot read it."""
    try:
        return Job.model_validate_json(text)
    except InputError:
        return None


def _is_up_to_date(database: Database, connection: sa.Connection) -> bool:
    version = database.get_meta(connection, _VERSION) or "1"
    if is_count(version) and int(version) > HASH_VERSION:
        raise StoreError(
            f"{database.name} was written by a newer Sizewright (hashes of jobs of version {version}; this one "
            f"supports up to {HASH_VERSION}).",
            "Run: pip install --upgrade sizewright",
        )
    return version == str(HASH_VERSION)


def _old_jobs(connection: sa.Connection) -> Iterator[tuple[str, Job]]:
    """Yield the jobs whose present hash differs from the one they are stored under, with the latter."""
    jobs = metadata.tables["jobs"]
    if jobs.name not in sa.inspect(connection).get_table_names():
        return
    for key, text in connection.execute(sa.select(jobs.c.hash, jobs.c.description)).all():
        job = read_job(text)
        known = job.known_as(key) if job else None
        if known and known.hash != key:
            yield key, known


def _rename(connection: sa.Connection) -> None:
    if "jobs" not in sa.inspect(connection).get_table_names():  # a new store, which holds no descriptions yet
        return
    if connection.dialect.name == "sqlite":  # secrets in older descriptions must not stay in free pages of the file
        connection.execute(sa.text("PRAGMA secure_delete = ON"))
    jobs, trials = metadata.tables["jobs"], metadata.tables["trials"]
    renamed = dict(_old_jobs(connection))
    for old, job in renamed.items():
        connection.execute(trials.update().where(trials.c.job_hash == old).values(job_hash=job.hash))
        connection.execute(jobs.delete().where(jobs.c.hash == old))
        existing = connection.execute(sa.select(jobs.c.hash).where(jobs.c.hash == job.hash)).first()
        if existing is None:  # else the same job was also described with another folder
            connection.execute(jobs.insert().values(hash=job.hash, description=job.model_dump_json(by_alias=True)))
    _rename_runs(connection, {old: job.hash for old, job in renamed.items()})
    _withhold(connection)


def _rename_runs(connection: sa.Connection, renamed: dict[str, str]) -> None:
    runs = metadata.tables["finished_jobs"]
    if not renamed:
        return
    runs_to_rename = sa.select(runs.c.number, runs.c.job_hash, runs.c.record).where(runs.c.job_hash.in_(renamed))
    for number, old, text in connection.execute(runs_to_rename).all():
        record = loads(text) | {"job_hash": renamed[old]}
        values = {"job_hash": renamed[old], "record": json.dumps(record, ensure_ascii=False)}
        connection.execute(runs.update().where(runs.c.number == number).values(values))


def _withhold(connection: sa.Connection) -> None:
    """Remove the secrets that older versions stored from all rows, also from rows that this version cannot read."""
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
    """Replace secrets in the description of a job, or in the job of a run, in place; return whether any was."""
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
