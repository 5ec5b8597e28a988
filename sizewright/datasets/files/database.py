"""A database of SQLite or of any other kind that SQLAlchemy supports, with a schema version per kind of record."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from sizewright.datasets._columns import as_utc
from sizewright.errors import NoTrialsError, StoreError
from sizewright.redaction import redacted
from sizewright.spec._paths import absolute, make_private, private

BUSY_TIMEOUT_S = 30.0
_SUFFIXES = ("", "-journal", "-wal", "-shm")  # of the files of an SQLite store; new ones get the mode of the first
_PACKAGES = {"MySQLdb": "mysqlclient", "psycopg": "'sizewright[postgres]'"}
_NAME_ANOTHER_STORE = "Name another store; `sizewright profile` creates a new one."


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A time in UTC, which is read as aware; databases without time zones store the UTC time."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Convert to UTC."""
        return None if value is None else as_utc(value)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Convert to UTC."""
        return None if value is None else as_utc(value)


metadata = sa.MetaData()
_meta = sa.Table(
    "sizewright_meta",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.String(64), nullable=False),
)


class RecordKind(NamedTuple):
    """Tables that share a schema version: what their rows are called, the key of the version, the supported version."""

    rows: str
    key: str
    version: int
    tables: tuple[sa.Table, ...]


class Database:
    """Connections to a database, with errors that a user can act on.

    `url` is an SQLAlchemy URL or the path of an SQLite file. With `create=False` the file must exist.
    Raises StoreError, here and in every method, when the database cannot be used.
    """

    def __init__(self, url: str | Path, *, create: bool) -> None:
        parsed = _parse(url)
        self._file = ""
        self.name = parsed.database or "" if _is_file(parsed) else redacted(str(url))
        if _is_file(parsed):
            _check_path(Path(self.name), create)
            self._file = absolute(self.name)
            parsed = parsed.set(database=self._file)  # the working folder may change
            if create:
                self._make_private()
        self._engine = _engine(parsed, self.name)

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        """Yield a connection for reading."""
        with self._guard(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def transaction(self, *, lock: RecordKind | None = None) -> Iterator[sa.Connection]:
        """Yield a transaction: committed to disk when it ends, rolled back when it fails.

        Transactions with the same `lock` wait for one another, so that what one reads stays true until it writes.
        """
        self._make_private()
        with self._guard(), self._engine.begin() as connection:
            if lock is not None:  # updating the row of the version locks it, in every database
                connection.execute(_meta.update().where(_meta.c.key == lock.key).values(value=_meta.c.value))
            yield connection

    def get_meta(self, connection: sa.Connection, key: str) -> str | None:
        """Return the value of the store's metadata under a key."""
        value: str | None = connection.execute(sa.select(_meta.c.value).where(_meta.c.key == key)).scalar_one_or_none()
        return value

    def set_meta(self, connection: sa.Connection, key: str, value: str) -> None:
        """Set a value of the store's metadata."""
        connection.execute(_meta.delete().where(_meta.c.key == key))
        connection.execute(_meta.insert().values(key=key, value=value))

    def tables(self) -> set[str]:
        """Return the names of the existing tables. Raises StoreError for another application's database."""
        with self.connect() as connection:
            tables = set(sa.inspect(connection).get_table_names())
        if tables and _meta.name not in tables:
            raise StoreError(f"{self.name} is another application's database, not a trial store.", _NAME_ANOTHER_STORE)
        return tables

    def has_tables(self, kind: RecordKind) -> bool:
        """Return whether the tables of a kind exist. Raises StoreError for tables of another version."""
        tables = self.tables()
        if not {table.name for table in kind.tables} <= tables:
            return False
        self._check_version(kind)
        self._check_columns(kind)
        return True

    def create(self, kind: RecordKind) -> None:
        """Create the tables of a kind where they do not exist."""
        # The version is written before the tables, so that a process that looks in between sees a store.
        self._create_table(_meta)
        try:
            with self.transaction() as connection:
                connection.execute(_meta.insert().values(key=kind.key, value=str(kind.version)))
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):  # else another process was first
                raise
        self._check_version(kind)
        for table in kind.tables:
            self._create_table(table)

    @contextmanager
    def exclusively(self, work: str) -> Iterator[None]:
        """Hold the lock of this work while the context lasts. Raises StoreError when another process holds it.

        The lock of a process of this host that has ended is taken over.
        """
        with self.connect() as connection:
            holder = connection.execute(sa.select(_meta.c.value).where(_meta.c.key == work)).scalar_one_or_none()
        this_process = f"{platform.node()[:36]} {os.getpid()} {_started_at(os.getpid())}"
        if holder is not None and not _has_ended(holder):
            host, pid, _ = _split_holder(holder)
            raise StoreError(
                f"Another {work} uses {self.name} (process {pid} on {host}).",
                f"Wait for it to end. If it has died: DELETE FROM {_meta.name} WHERE key = '{work}'.",
            )
        with self.transaction() as connection:
            connection.execute(_meta.delete().where((_meta.c.key == work) & (_meta.c.value == holder)))
        try:
            with self.transaction() as connection:
                connection.execute(_meta.insert().values(key=work, value=this_process))
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            raise StoreError(f"Another {work} of {self.name} has just begun.", "Wait for it to end.") from None
        try:
            yield
        except BaseException:
            with suppress(StoreError):  # the first error is the one to report
                self._release(work, this_process)
            raise
        self._release(work, this_process)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _release(self, work: str, this_process: str) -> None:
        with self.transaction() as connection:
            connection.execute(_meta.delete().where((_meta.c.key == work) & (_meta.c.value == this_process)))

    def _make_private(self) -> None:
        """Take away the permissions of others that earlier versions left, before anything is written."""
        for suffix in _SUFFIXES if self._file else ():
            make_private(os.path.realpath(self._file) + suffix)

    def _create_table(self, table: sa.Table) -> None:
        """Create a table. PostgreSQL may refuse it while another process creates it, even with IF NOT EXISTS."""
        try:
            with self.transaction() as connection:
                connection.execute(CreateTable(table, if_not_exists=True))
        except StoreError:
            if table.name not in self.tables():
                raise

    def _check_version(self, kind: RecordKind) -> None:
        query = sa.select(_meta.c.value).where(_meta.c.key == kind.key)
        with self.connect() as connection:
            version = connection.execute(query).scalar_one_or_none()
        if version is None or not version.isdecimal():
            raise StoreError(f"{self.name} has no valid version of its {kind.rows}.", _NAME_ANOTHER_STORE)
        if int(version) > kind.version:
            raise StoreError(
                f"{self.name} was written by a newer Sizewright ({kind.rows} of version {version}; "
                f"this one supports up to {kind.version}).",
                "Run: pip install --upgrade sizewright",
            )

    def _check_columns(self, kind: RecordKind) -> None:
        """Add missing nullable columns. Raises StoreError where a required column is missing."""
        missing: list[sa.Column[Any]] = []
        with self.connect() as connection:
            for table in kind.tables:
                present = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
                missing += [column for column in table.c if column.name not in present]
        if required := [column.name for column in missing if not column.nullable]:
            raise StoreError(
                f"{self.name} lacks the columns {', '.join(required)}, which this version needs for {kind.rows}.",
                f"Export its {kind.rows} with the Sizewright that wrote them and import them into a new store.",
            )
        for column in missing:
            self._add_column(column)

    def _add_column(self, column: sa.Column[Any]) -> None:
        kind = column.type.compile(self._engine.dialect)
        try:
            with self.transaction() as connection:
                connection.execute(sa.text(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}"))
        except StoreError:
            with self.connect() as connection:
                present = {one["name"] for one in sa.inspect(connection).get_columns(column.table.name)}
            if column.name not in present:  # else another process was first
                raise

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError, OverflowError, ValueError) as error:
            raise _store_error(self.name, error) from error


def is_in_memory(url: str) -> bool:
    """Return whether the URL names SQLite without a file, whose rows are lost with the process."""
    return url in ("sqlite:", "sqlite://", "sqlite:///") or ":memory:" in url


def is_trial_store(path: Path) -> bool:
    """Return whether a file is a trial store; False where it is not a database at all."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
            return bool(connection.execute(query, (_meta.name,)).fetchone()[0])
    except sqlite3.Error:
        return False


def _has_ended(holder: str) -> bool:
    """Return whether the holder, a process of this host, has ended. False for other hosts, where it is unknown."""
    host, pid, started_at = _split_holder(holder)
    return host == platform.node()[:36] and pid.isdecimal() and str(_started_at(int(pid))) != started_at


def _split_holder(holder: str) -> tuple[str, str, str]:
    host, pid, started_at = (*holder.split(" "), "", "")[:3]
    return host, pid, started_at


def _started_at(pid: int) -> int | None:
    """Return the start time of a process in seconds since 1970, or None where there is no such process."""
    try:
        return round(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def _parse(url: str | Path) -> sa.URL:
    if "://" not in str(url):
        return sa.URL.create("sqlite", database=str(Path(url).expanduser()))
    try:
        parsed = sa.make_url(str(url))
    except (ArgumentError, ValueError):
        raise StoreError(
            "The URL of the trial store cannot be read.",
            "Write sqlite:///trials.db or postgresql://user@host/database.",
        ) from None
    return parsed.set(database=os.path.expanduser(str(parsed.database))) if _is_file(parsed) else parsed


def _is_file(url: sa.URL) -> bool:
    name = url.database or ""
    return url.get_backend_name() == "sqlite" and name not in ("", ":memory:") and not name.startswith("file:")


def _check_path(path: Path, create: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a trial store.", f"Name a file in it: {path / 'sizewright.db'}")
    if not path.exists() and not create:
        raise no_trials(str(path))
    if not path.parent.is_dir():
        raise StoreError(f"The folder {path.parent} of the trial store does not exist.", f"Run: mkdir -p {path.parent}")
    if create and not path.exists():
        with suppress(OSError), open(path, "ab", opener=private):  # SQLite's own would be readable by everybody
            pass


def _engine(url: sa.URL, name: str) -> sa.Engine:
    # A fresh connection for each call notices when an SQLite file was deleted or replaced meanwhile.
    options: dict[str, Any] = {"poolclass": NullPool} if _is_file(url) else {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": BUSY_TIMEOUT_S}
    try:
        return sa.create_engine(url, **options)
    except NoSuchModuleError:
        raise StoreError(
            f"{url.drivername!r} is not a supported kind of database.",
            "Use sqlite:///trials.db or postgresql://…",
        ) from None
    except ImportError as error:
        module = error.name or url.drivername
        raise StoreError(
            f"The trial store {name} needs {module}, which is not installed.",
            f"Run: pip install {_PACKAGES.get(module, module)}",
        ) from None
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise _store_error(name, error) from None


def no_trials(name: str) -> NoTrialsError:
    """Return the error for a store that does not exist yet or is empty."""
    return NoTrialsError(f"There are no trials at {name} yet.", "Run: sizewright profile")


def _store_error(name: str, error: Exception) -> StoreError:
    reason = str(getattr(error, "orig", None) or error).partition("\n")[0].rstrip(".")
    if "not a database" in reason:
        return StoreError(f"{name} is not a trial store: it is not a database at all.", _NAME_ANOTHER_STORE)
    if "readonly" in reason or "read-only" in reason:
        return StoreError(f"The trial store {name} is read-only.", "Make it and its folder writable, or name another.")
    if "locked" in reason:
        return StoreError(f"The trial store {name} is locked by another process.", "Wait for it to end and try again.")
    return StoreError(f"The trial store {name} cannot be used: {reason}.", "Check its path or URL and permissions.")
