"""Invalid registries and those of other versions are refused in one sentence, and nothing is written into them."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from sizewright import api
from sizewright.errors import InputError, RegistryError
from sizewright.retraining import registry
from sizewright.retraining.registry import Registry
from tests.helpers.small_server import Reply, server

OLD_SCHEMA = "90e64c465722"


def database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def test_registry_of_a_newer_mlflow_is_refused_unchanged(shared: Path, tmp_path: Path, store: str) -> None:
    path = tmp_path / "new.db"
    shutil.copy(shared / "field" / "ML1" / "new.db", path)
    digest_before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(
        RegistryError, match=r"upgraded by a newer MLflow than .* pip install --upgrade mlflow, or name"
    ):
        Registry(f"sqlite:///{path}").versions()
    for ask in (
        lambda: api.compare_priors(["champion"], tracking_uri=f"sqlite:///{path}"),
        lambda: api.drift(store=store, tracking_uri=f"sqlite:///{path}"),
    ):
        with pytest.raises(RegistryError, match="upgraded by a newer MLflow"):
            ask()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest_before


def test_recommendation_continues_without_a_registry_of_a_newer_mlflow(
    shared: Path, tmp_path: Path, example: Path, store: str
) -> None:
    path = tmp_path / "new.db"
    shutil.copy(shared / "field" / "ML1" / "new.db", path)
    answer = api.recommend(example, store=store, tracking_uri=f"sqlite:///{path}")
    assert answer.status == "ok"
    assert any("upgraded by a newer MLflow" in reason for reason in answer.reasons)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            ("CREATE TABLE experiments(a)", "CREATE TABLE alembic_version(version_num)",
             f"INSERT INTO alembic_version VALUES ('{OLD_SCHEMA}')"),
            r"made by an older MLflow: .* mlflow db upgrade 'sqlite:///",
        ),
        (("CREATE TABLE users(a)",), "is another application's database"),
        (
            ("CREATE TABLE users(a)", "CREATE TABLE alembic_version(version_num)",
             "INSERT INTO alembic_version VALUES ('abc')"),
            "is another application's database",
        ),
    ],
)  # fmt: skip
def test_database_of_another_application_is_refused(tmp_path: Path, statements: tuple[str, ...], message: str) -> None:
    path = database(tmp_path / "other.db", *statements)
    content_before = path.read_bytes()
    with pytest.raises(RegistryError, match=message):
        Registry(f"sqlite:///{path}").versions()
    assert path.read_bytes() == content_before


def test_invalid_or_locked_database_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = partial(registry.create_engine, connect_args={"timeout": 0.2})
    monkeypatch.setattr(registry, "create_engine", impatient)
    (tmp_path / "text.db").write_text("no database, " * 99)
    with pytest.raises(RegistryError, match=r"it is not a database at all\. Name another"):
        Registry(f"sqlite:///{tmp_path / 'text.db'}").versions()
    path = database(tmp_path / "locked.db", "CREATE TABLE experiments(a)")
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RegistryError, match="another process has locked it"):
            Registry(f"sqlite:///{path}").versions()


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (401, b"You are not authenticated.", "text/plain", "it requires a login.* Set MLFLOW_TRACKING_USERNAME"),
        (403, b"<html>Forbidden</html>", "text/html", "it requires a login"),
        (404, b"<html>Not Found</html>", "text/html", "not an MLflow server.* Check the URL"),
        (404, b"404 page not found", "text/plain", r"not an MLflow server \(404, not found\)"),
        (200, b"<!DOCTYPE html><html>Sign in</html>", "text/html", "a web page or another service"),
        (200, b'{"registered_models": 3}', "application/json", "cannot be used"),
        (200, b"[1, 2]", "application/json", "cannot be used"),
    ],
)
def test_other_servers_are_refused_in_one_sentence_without_the_password(
    status: int, body: bytes, kind: str, message: str
) -> None:
    with (
        server(lambda *_: Reply(status, body, {"Content-Type": kind})) as url,
        pytest.raises(RegistryError, match=message) as raised,
    ):
        Registry(url.replace("//", "//alice:s3cret@")).versions()
    assert "s3cret" not in str(raised.value)
    assert "\n" not in str(raised.value)


VERSION = {"name": "sizewright-prior", "version": "1", "run_id": "r", "creation_timestamp": 5, "tags": []}


@pytest.mark.parametrize(
    "fields",
    [
        {"version": "one"}, {"version": None}, {"version": []}, {"creation_timestamp": "x"}, {"tags": 3}, {"tags": [3]},
        {"tags": {"a": "b"}}, {"version": "1", "aliases": 4},
    ],
)  # fmt: skip
def test_invalid_versions_are_refused_in_one_sentence(fields: dict[str, object]) -> None:
    def reply(path: str, *_: object) -> Reply:
        model = {"name": "sizewright-prior", "aliases": [{"alias": "champion", "version": fields.get("version", "1")}]}
        answer = {"registered_models": [model], "registered_model": model, "model_versions": [VERSION | fields]}
        return Reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    with server(reply) as url, pytest.raises(RegistryError, match="cannot be used") as raised:
        Registry(url).versions()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://u:s3cret@host/x", "unknown kind"), ("mlflow:5000", "unknown kind"), ("http://[::1", "unknown kind"),
        ("postgresql+psycopg://u:s3cret@127.0.0.1:9/db", "does not answer"),
        ("http://u:s3cret@127.0.0.1:9", "does not answer"),
        ("postgresqlx://u:s3cret@h/db", "an unknown kind"), ("mlruns", "no longer supports registries in folders"),
    ],
)  # fmt: skip
def test_error_of_a_wrong_uri_hides_the_password(
    uri: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((RegistryError, InputError), match=message) as raised:
        Registry(uri).versions()
    assert "s3cret" not in str(raised.value)
