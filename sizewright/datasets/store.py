"""The trial store: every measurement, kept in SQLite or in any other database that SQLAlchemy speaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from sizewright.datasets._columns import COLUMNS, as_utc
from sizewright.datasets.trials import TRIAL_SCHEMA_VERSION, Trial, TrialStatus
from sizewright.errors import NoTrialsError, StoreError

BUSY_TIMEOUT_S = 30.0
_VERSION_KEY = "trial_schema_version"
_PACKAGES = {"MySQLdb": "mysqlclient"}
_OTHER_STORE = "Name another store; `sizewright profile` makes a new one."


class _UtcDateTime(sa.types.TypeDecorator[datetime]):
    """Databases without time zones hold the UTC time; it comes back aware."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else as_utc(value)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else as_utc(value)


_TYPES: dict[type, sa.types.TypeEngine[Any]] = {
    int: sa.BigInteger(),
    float: sa.Double(),
    str: sa.Text(),
    datetime: _UtcDateTime(),
}
_metadata = sa.MetaData()
_meta = sa.Table(
    "sizewright_meta",
    _metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.String(64), nullable=False),
)
_trials = sa.Table(
    "trials",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    *(sa.Column(name, _TYPES[kind], nullable=True) for name, kind in COLUMNS.items()),
)


class TrialStore:
    """Trials of any number of jobs, in the order they were added.

    `url` is an SQLAlchemy URL or the path of an SQLite file. With `create=False` the store must exist.
    Raises StoreError, here and in every method, when the store cannot be used.
    """

    def __init__(self, url: str | Path = "sqlite:///sizewright.db", *, create: bool = True) -> None:
        self._url = _parse(url)
        self.name = self._url.database or "" if _is_file(self._url) else self._url.render_as_string()
        if _is_file(self._url):
            _check_path(Path(self.name), create)
        self._engine = _engine(self._url, self.name)
        try:
            self._open(create)
        except BaseException:
            self.close()
            raise

    def add(self, trial: Trial) -> int:
        """Keep one trial, on disk when this returns; the answer is its row id."""
        with self._guard(), self._engine.begin() as connection:
            result = connection.execute(_trials.insert().values(trial.model_dump()))
            return int(result.inserted_primary_key[0])  # type: ignore[index]

    def trials(self, *, job_hash: str | None = None, series: str | None = None, host: str | None = None) -> list[Trial]:
        """The trials that match every argument given, oldest first."""
        query = _trials.select().order_by(_trials.c.id)
        for name, value in {"job_hash": job_hash, "series": series, "host": host}.items():
            if value is not None:
                query = query.where(_trials.c[name] == value)
        with self._guard(), self._engine.connect() as connection:
            return [self._trial(dict(row)) for row in connection.execute(query).mappings()]

    def count(self) -> int:
        """Number of trials of any status."""
        with self._guard(), self._engine.connect() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(_trials)).scalar_one())

    def mark(self, series: str, status: TrialStatus | str, message: str) -> int:
        """Give the `ok` trials of a series another status and its reason; the answer is how many there were."""
        if status not in get_args(TrialStatus):
            raise StoreError(f"{status!r} is no status of a trial.", f"Use one of: {', '.join(get_args(TrialStatus))}.")
        chosen = (_trials.c.series == series) & (_trials.c.status == "ok")
        with self._guard(), self._engine.begin() as connection:
            return connection.execute(_trials.update().where(chosen).values(status=status, message=message)).rowcount

    def widen(self, series: str, relative_se: float) -> None:
        """Raise the standard errors of a series to at least this share of the throughput."""
        floor = relative_se * _trials.c.throughput
        error = sa.func.coalesce(_trials.c.throughput_se, 0.0)
        wider = sa.case((error < floor, floor), else_=error)
        chosen = (_trials.c.series == series) & _trials.c.throughput.is_not(None)
        with self._guard(), self._engine.begin() as connection:
            connection.execute(_trials.update().where(chosen).values(throughput_se=wider))

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self, create: bool) -> None:
        with self._guard(), self._engine.connect() as connection:
            tables = set(sa.inspect(connection).get_table_names())
        if tables and _meta.name not in tables:
            raise StoreError(f"{self.name} is another application's database, not a trial store.", _OTHER_STORE)
        if create and not {_meta.name, _trials.name} <= tables:
            self._create()
        elif _trials.name not in tables:
            raise _no_trials(self.name)
        self._check_version()
        self._check_columns()

    def _create(self) -> None:
        # The version comes before the trials, so that a second process that looks in between sees a store.
        with self._guard(), self._engine.begin() as connection:
            connection.execute(CreateTable(_meta, if_not_exists=True))
        try:
            with self._guard(), self._engine.begin() as connection:
                connection.execute(_meta.insert().values(key=_VERSION_KEY, value=str(TRIAL_SCHEMA_VERSION)))
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):  # else another process was first
                raise
        self._check_version()
        with self._guard(), self._engine.begin() as connection:
            connection.execute(CreateTable(_trials, if_not_exists=True))

    def _check_version(self) -> None:
        query = sa.select(_meta.c.value).where(_meta.c.key == _VERSION_KEY)
        with self._guard(), self._engine.connect() as connection:
            version = connection.execute(query).scalar_one_or_none()
        if version is None or not version.isdecimal():
            raise StoreError(f"{self.name} does not tell the version of its trials.", _OTHER_STORE)
        if int(version) > TRIAL_SCHEMA_VERSION:
            raise StoreError(
                f"{self.name} was written by a newer Sizewright (trials of version {version}; "
                f"this one knows up to {TRIAL_SCHEMA_VERSION}).",
                "Run: pip install --upgrade sizewright",
            )

    def _check_columns(self) -> None:
        with self._guard(), self._engine.connect() as connection:
            present = {column["name"] for column in sa.inspect(connection).get_columns(_trials.name)}
        missing = [name for name in _trials.c.keys() if name not in present]  # noqa: SIM118
        if missing:
            raise StoreError(
                f"{self.name} lacks the columns {', '.join(missing)} of today's trials.",
                "Export its trials to CSV with the Sizewright that wrote them and import them into a new store.",
            )

    def _trial(self, row: dict[str, Any]) -> Trial:
        number = row.pop("id")
        try:
            return Trial.model_validate(row)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"])
            raise StoreError(
                f"Row {number} of {self.name} is not a trial: {where}: {fault['msg']}.", "Correct or delete that row."
            ) from None

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError, OverflowError, ValueError) as error:
            raise _explained(self.name, error) from error


def _parse(url: str | Path) -> sa.URL:
    if "://" not in str(url):
        return sa.URL.create("sqlite", database=str(Path(url).expanduser()))
    try:
        return sa.make_url(str(url))
    except (ArgumentError, ValueError):
        raise StoreError(
            "The URL of the trial store cannot be read.",
            "Write sqlite:///trials.db or postgresql://user@host/database.",
        ) from None


def _is_file(url: sa.URL) -> bool:
    name = url.database or ""
    return url.get_backend_name() == "sqlite" and name not in ("", ":memory:") and not name.startswith("file:")


def _check_path(path: Path, create: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a trial store.", f"Name a file in it: {path / 'sizewright.db'}")
    if not path.exists() and not create:
        raise _no_trials(str(path))
    if not path.parent.is_dir():
        raise StoreError(f"The folder {path.parent} of the trial store does not exist.", f"Run: mkdir -p {path.parent}")


def _engine(url: sa.URL, name: str) -> sa.Engine:
    # A fresh connection for each call notices when an SQLite file was deleted or replaced meanwhile.
    options: dict[str, Any] = {"poolclass": NullPool} if _is_file(url) else {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": BUSY_TIMEOUT_S}
    try:
        return sa.create_engine(url, **options)
    except NoSuchModuleError:
        raise StoreError(
            f"{url.drivername!r} is no kind of database that is known here.",
            "Use sqlite:///trials.db or postgresql://…",
        ) from None
    except ImportError as error:
        module = error.name or url.drivername
        raise StoreError(
            f"The trial store {name} needs {module}, which is not installed.",
            f"Run: pip install {_PACKAGES.get(module, module)}",
        ) from None
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise _explained(name, error) from None


def _no_trials(name: str) -> NoTrialsError:
    return NoTrialsError(f"There are no trials at {name} yet.", "Run: sizewright profile")


def _explained(name: str, error: Exception) -> StoreError:
    reason = str(getattr(error, "orig", None) or error).partition("\n")[0].rstrip(".")
    if "not a database" in reason:
        return StoreError(f"{name} is not a trial store: it is not a database at all.", _OTHER_STORE)
    if "readonly" in reason or "read-only" in reason:
        return StoreError(f"The trial store {name} is read-only.", "Make it and its folder writable, or name another.")
    if "locked" in reason:
        return StoreError(f"The trial store {name} is held by another process.", "Wait for it to end, then try again.")
    return StoreError(f"The trial store {name} cannot be used: {reason}.", "Check its path or URL and your rights.")
