"""The registry of priors on an MLflow server or in an MLflow database. Aliases mark the version in use."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import create_engine, inspect
from sqlalchemy.pool import NullPool

from sizewright.datasets.files.database import is_in_memory, is_trial_store
from sizewright.errors import (
    InputError,
    MissingExtraError,
    RegistryError,
    SizewrightError,
    StoreError,
    UnusableVersionError,
)
from sizewright.formatting import format_bytes
from sizewright.models.prior import LearnedPrior
from sizewright.redaction import beginning, redacted

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

NAME = "sizewright-prior"
CHAMPION, CHALLENGER = "champion", "challenger"
PRIOR, TWIN = "prior.json", "held-out-prior.json"
"""Files of a version: the prior, and its twin, which was learned without the held-out base shapes."""
FOLDER = "prior"
REPLACED = "replaced_by"
# With MLflow's own defaults it takes minutes until a server that does not answer is an error.
_MLFLOW_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_DATABASES, _CONNECT_S = ("postgresql", "mysql"), 10
_REVISION = "alembic_version"
_MAX_BYTES = 64 << 20
"""Maximum size of a prior; the shipped one is less than a hundredth of it."""

_OTHER_VERSION = "Promote another version, or retrain: sizewright models list."


class Version(NamedTuple):
    """One registered prior."""

    number: int
    aliases: tuple[str, ...]
    tags: dict[str, str]
    run_id: str
    created_ms: int

    @property
    def source(self) -> str:
        """The name by which recommendations cite the version."""
        return f"{NAME} version {self.number}"


class Registry:
    """The registry of priors at an MLflow tracking URI.

    Raises MissingExtraError without mlflow, InputError for a URI that names no file or a trial store. Methods raise
    RegistryError where the registry cannot be used.
    """

    def __init__(self, uri: str) -> None:
        try:
            import mlflow.tracking  # noqa: F401
        except ImportError:
            raise MissingExtraError("track", "mlflow") from None
        self.uri, self.name = uri, redacted(uri)
        self._file = _file_of(uri)

    @cached_property
    def client(self) -> MlflowClient:
        """The MLflow client. Its first use creates a missing database."""
        from mlflow.tracking import MlflowClient

        with self.guard():
            _check_database(self.uri)
            return MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)

    def versions(self) -> list[Version]:
        """Return all versions, the newest first."""
        with self.guard():
            if (self._file and not self._file.exists()) or not self._has_model():
                return []
            models = self.client.search_model_versions(f"name = '{NAME}'")
            aliases = self.client.get_registered_model(NAME).aliases
            return sorted((_version(model, aliases) for model in models), key=lambda version: -version.number)

    def version(self, which: str) -> Version:
        """Return a version by its number or alias. Raises InputError for an unknown one."""
        versions = self.versions()
        for version in versions:
            if which.removeprefix("@") in (str(version.number), *version.aliases):
                return version
        known = ", ".join(str(version.number) for version in versions)
        raise InputError(
            f"{NAME} has no version {which!r} at {self.name}.",
            f"Known: {known}." if known else "Make one: sizewright retrain --tracking-uri URI.",
        )

    def newest(self) -> Version | None:
        """Return the version that was registered last, or None."""
        return next(iter(self.versions()), None)

    def champion(self) -> Version | None:
        """Return the version in use; None before the first promotion."""
        return next((version for version in self.versions() if CHAMPION in version.aliases), None)

    def load(self, version: Version, what: str = PRIOR) -> LearnedPrior:
        """Return the prior of a version, or its twin (`what=TWIN`).

        Raises UnusableVersionError where the file is missing, was changed after it was registered, or cannot be read by
        this version of Sizewright.
        """
        from mlflow.artifacts import download_artifacts

        with self.guard(), tempfile.TemporaryDirectory() as folder:
            files = {Path(file.path).name: file for file in self.client.list_artifacts(version.run_id, FOLDER)}
            if what not in files:
                raise UnusableVersionError(f"{version.source} at {self.name} lacks {what}.", _OTHER_VERSION)
            self._check_size(version, what, files[what].file_size or 0)
            path = download_artifacts(
                run_id=version.run_id, artifact_path=f"{FOLDER}/{what}", dst_path=folder, tracking_uri=self.uri
            )
            self._check_size(version, what, Path(path).stat().st_size)  # the server may have reported another size
            data = Path(path).read_bytes()
        if hashlib.sha256(data).hexdigest() != version.tags.get(f"sha256.{what}"):
            raise UnusableVersionError(
                f"{version.source} at {self.name} was changed after it was registered: {what} is not what was hashed.",
                _OTHER_VERSION,
            )
        try:
            return LearnedPrior.from_json(data.decode(), version.source)
        except (StoreError, UnicodeDecodeError) as error:
            raise UnusableVersionError(
                f"{version.source} at {self.name}: {error}", "Retrain: sizewright retrain."
            ) from None

    def _check_size(self, version: Version, what: str, size: int) -> None:
        if size > _MAX_BYTES:
            raise UnusableVersionError(
                f"{version.source} at {self.name}: {what} has {format_bytes(size)}; "
                f"at most {format_bytes(_MAX_BYTES)} are allowed.",
                _OTHER_VERSION,
            )

    def check(self, version: Version) -> None:
        """Raise UnusableVersionError unless both files of the version are as registered."""
        for what in (PRIOR, TWIN):
            self.load(version, what)

    def add(self, run_id: str, source: str, tags: Mapping[str, str]) -> Version:
        """Register a new version with its tags, and make it the challenger."""
        with self.guard():
            if not self._has_model():
                self.client.create_registered_model(NAME, description="Samples/s of jobs that were never measured.")
            model = self.client.create_model_version(NAME, source, run_id, tags=dict(tags))
            self.client.set_registered_model_alias(NAME, CHALLENGER, model.version)
        return self.version(str(model.version))

    def tag(self, version: Version, key: str, value: str) -> None:
        """Set a tag of a version."""
        with self.guard():
            self.client.set_model_version_tag(NAME, str(version.number), key, value)

    def promote(self, version: Version) -> None:
        """Make a version the champion.

        The version that it replaces is recorded first, so the alias moves last, in one step.
        """
        previous = self.champion()
        if previous and previous.number == version.number:
            return
        if previous:
            self.tag(version, "replaces", str(previous.number))
        with self.guard():
            self.client.set_registered_model_alias(NAME, CHAMPION, str(version.number))
        if previous:
            self.tag(previous, REPLACED, str(version.number))
        if CHALLENGER in version.aliases:
            with self.guard():
                self.client.delete_registered_model_alias(NAME, CHALLENGER)

    def replaced(self) -> Version:
        """Return the version that the champion replaced. Raises InputError where it replaced none."""
        champion = self.champion()
        previous = champion.tags.get("replaces") if champion else None
        if champion is None or previous is None:
            raise InputError(
                f"The champion of {NAME} at {self.name} replaced no other version."
                if champion
                else f"{NAME} has no champion yet.",
                "Name one: sizewright models promote VERSION.",
            )
        return self.version(previous)

    def rollback(self) -> Version:
        """Make the version that the champion replaced the champion again. Raises InputError where it replaced none."""
        version, champion = self.replaced(), self.champion()
        self.check(version)
        with self.guard():
            self.client.set_registered_model_alias(NAME, CHAMPION, str(version.number))
        if champion:
            self.tag(champion, REPLACED, str(version.number))
        return version

    def _has_model(self) -> bool:
        return any(model.name == NAME for model in self.client.search_registered_models(f"name = '{NAME}'"))

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Translate all errors of MLflow into RegistryError."""
        before = {name: os.environ.get(name) for name in _MLFLOW_ENVIRONMENT}
        os.environ.update({name: value for name, value in _MLFLOW_ENVIRONMENT.items() if before[name] is None})
        try:
            yield
        except SizewrightError:
            raise
        except Exception as error:  # a server of another version may make MLflow's client raise anything
            reason, remedy = _explain(error)
            raise RegistryError(f"The model registry at {self.name} cannot be used: {reason}.", remedy) from error
        finally:
            for name in (name for name, value in before.items() if value is None):
                os.environ.pop(name, None)


def _file_of(uri: str) -> Path | None:
    """Return the SQLite file of a URI, or None. Raises InputError for one that cannot be used, or a trial store."""
    if not uri.startswith("sqlite:"):
        return None
    path = Path(uri.removeprefix("sqlite:///"))
    if is_in_memory(uri) or path.is_dir():
        raise InputError(
            f"{uri} names no file, so registered versions would be lost.",
            "Name one: --tracking-uri sqlite:///sizewright-models.db",
        )
    if not path.parent.is_dir():
        raise InputError(f"The folder {path.parent} of {uri} does not exist.", f"Run: mkdir -p {path.parent}")
    if path.is_file() and is_trial_store(path):
        raise InputError(
            f"{uri} is a trial store, and MLflow needs a database of its own.",
            "Name another: --tracking-uri sqlite:///mlflow.db",
        )
    return path


def _check_database(uri: str) -> None:
    """Raise an error for a database that MLflow cannot use.

    MLflow itself retries a database that is down for minutes, and creates its tables in any database. Raises
    RegistryError for a database of another MLflow or another application, SQLAlchemyError for one that is down.
    """
    if uri.startswith(_DATABASES):
        engine = create_engine(uri, poolclass=NullPool, connect_args={"connect_timeout": _CONNECT_S})
    elif uri.startswith("sqlite:"):
        engine = create_engine(uri, poolclass=NullPool)
    else:
        return
    from alembic.migration import MigrationContext

    name = redacted(uri)
    with engine.connect() as connection:
        tables = set(inspect(connection).get_table_names())
        revision = MigrationContext.configure(connection).get_current_revision() if _REVISION in tables else None
    if tables and not {_REVISION, "experiments"} <= tables:
        raise RegistryError(
            f"{name} is another application's database, and MLflow needs one of its own.",
            "Name another: --tracking-uri sqlite:///mlflow.db",
        )
    if revision is not None:
        _check_revision(name, revision)


def _check_revision(name: str, revision: str) -> None:
    import mlflow
    from alembic.script import ScriptDirectory

    known = ScriptDirectory(str(Path(mlflow.__file__).parent / "store" / "db_migrations"))
    if revision not in {script.revision for script in known.walk_revisions()}:
        raise RegistryError(
            f"The model registry at {name} was upgraded by a newer MLflow than {mlflow.__version__}, which is "
            f"installed: its schema {revision} is unknown.",
            "Run: pip install --upgrade mlflow, or name another registry with --tracking-uri.",
        )
    if revision not in known.get_heads():
        raise RegistryError(
            f"The model registry at {name} was made by an older MLflow: its schema is {revision}, and MLflow "
            f"{mlflow.__version__} needs {known.get_current_head()}.",
            f"Back it up, then run: mlflow db upgrade '{name}'. Or name another with --tracking-uri.",
        )


def digest(text: str) -> str:
    """Return the SHA-256 of a file's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _version(model: ModelVersion, aliases: Mapping[str, Any]) -> Version:
    number = int(model.version)
    own_aliases = tuple(sorted(alias for alias, version in aliases.items() if int(version) == number))
    return Version(number, own_aliases, dict(model.tags), str(model.run_id), int(model.creation_timestamp or 0))


def _explain(error: Exception) -> tuple[str, str]:
    """Return the reason of an error as a clause, and the remedy."""
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    for pattern, reason, remedy in _REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return reason, remedy
    has_clear_text = isinstance(error, OSError | RuntimeError | ImportError) or "mlflow" in type(error).__module__
    return _short(text if has_clear_text else f"{type(error).__name__}: {text}"), _START


_START = "Start it (mlflow server), or name another with --tracking-uri."
_CHECK = "Check the URL, or name another with --tracking-uri."
_REASONS = (
    ("not a database", "it is not a database at all", "Name another with --tracking-uri."),
    ("read-?only", "it is read-only", "Make it and its folder writable, or name another with --tracking-uri."),
    ("is locked", "another process has locked it", "Wait until that process ends, then try again."),
    (
        r"\b401\b|unauthori[sz]ed|\b403\b|forbidden",
        "it requires a login, or refuses the given one",
        "Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN.",
    ),
    ("<!doctype|<html|not in a valid JSON", "a web page or another service answers, not an MLflow server", _CHECK),
    (r"error code 404|\b404\b", "the server that answers is not an MLflow server (404, not found)", _CHECK),
    (
        "certificate verify failed",
        "its certificate is not trusted",
        "Name the certificate of its issuer: export REQUESTS_CA_BUNDLE=ca.pem.",
    ),
    ("wrong version number|SSLError", "it does not speak TLS", "Write http:// instead of https://."),
    ("password authentication failed|access denied", "the database refuses this user or password", _CHECK),
    (
        "filesystem tracking backend",
        "MLflow no longer supports registries in folders of files",
        "Name a database: --tracking-uri sqlite:///mlflow.db",
    ),
    (
        "unsupported URI|can't load plugin|could not parse|invalid.*url|no registry",
        "its URI is of an unknown kind",
        "Give a URI such as sqlite:///models.db or http://mlflow:5000.",
    ),
    ("name or service|name resolution|could not translate", "its host is unknown", _CHECK),
    ("connection refused", "it does not answer: connection refused", _START),
    ("could not connect|failed to establish|timed out|timeout|max retries", "it does not answer", _START),
)


def _short(text: str) -> str:
    return beginning(text.rstrip("."), 200)
