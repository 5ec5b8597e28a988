from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.runs.history_files import export_history, import_history
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import StoreError
from sizewright.spec import Job, Outcome

DESCRIPTION: dict[str, Any] = {"name": "clicks", "data": {"format": "criteo", "path": "/home/ann/day_*.gz"}}
ANN = Job.model_validate(DESCRIPTION)
BOB = Job.model_validate(DESCRIPTION | {"data": {"format": "criteo", "path": "/bob/day_*.gz"}})
OTHER = Job.model_validate({"data": {"format": "criteo", "path": "/home/ann/test.gz"}})


def old_store(url: str) -> None:
    """A store as the first version of hashes left it: trials of a described job, of the same job in another folder,
    of a job that nobody described, and of none."""
    with TrialStore(url) as store:
        for workers, key in enumerate((ANN.hashes[1], BOB.hashes[1], OTHER.hashes[1], None), start=1):
            store.add(Trial(workers=workers, ps=1, throughput=100.0, job_hash=key))
        for job in (ANN, BOB):
            store.history.add_job(job)
        store.history.add([FinishedJob(id="a", name="clicks", job=ANN, outcome=Outcome(status="finished"))])
        store.history.add(
            [FinishedJob(id="b", name="clicks", job_hash=BOB.hashes[1], outcome=Outcome(status="finished"))]
        )
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM sizewright_meta WHERE key = 'job_hash_version'"))
        connection.execute(sa.text("DELETE FROM jobs"))
        for job in (ANN, BOB):
            row = {"hash": job.hashes[1], "description": job.model_dump_json(by_alias=True)}
            connection.execute(sa.text("INSERT INTO jobs VALUES (:hash, :description)"), row)
        record = json.loads(connection.execute(sa.text("SELECT record FROM finished_jobs WHERE id = 'a'")).scalar_one())
        row = {"hash": ANN.hashes[1], "record": json.dumps(record | {"job_hash": ANN.hashes[1]})}
        connection.execute(sa.text("UPDATE finished_jobs SET job_hash = :hash, record = :record WHERE id = 'a'"), row)
    engine.dispose()


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    old_store(f"sqlite:///{tmp_path / 'old.db'}")
    yield tmp_path / "old.db"
    (tmp_path / "old.db").chmod(0o644)


def answers(store: TrialStore) -> None:
    for job in (ANN, BOB):
        assert [(trial.workers, trial.job_hash) for trial in store.trials(job=job)] == [(1, ANN.hash), (2, ANN.hash)]
        assert [run.key for run in store.history.finished(job=job)] == [ANN.hash, ANN.hash]
    assert [trial.workers for trial in store.trials(job_hash=ANN.hash)] == [1, 2]
    assert [trial.workers for trial in store.trials(job=OTHER)] == [3]
    assert [trial.job_hash for trial in store.trials()] == [ANN.hash, ANN.hash, OTHER.hashes[1], None]
    assert set(store.history.jobs()) == {ANN.hash}
    assert len(store.history.finished(job_hash=ANN.hash)) == 2


def test_old_store_is_migrated_once_and_finds_jobs_of_any_folder(path: Path) -> None:
    with TrialStore(path, create=False) as store:
        answers(store)
    with sqlite3.connect(path) as connection:
        assert dict(connection.execute("SELECT key, value FROM sizewright_meta"))["job_hash_version"] == "3"
        assert {row[0] for row in connection.execute("SELECT hash FROM jobs")} == {ANN.hash}
        assert {row[0] for row in connection.execute("SELECT job_hash FROM trials")} == {
            ANN.hash, OTHER.hashes[1], None,
        }  # fmt: skip
        assert {row[0] for row in connection.execute("SELECT job_hash FROM finished_jobs")} == {ANN.hash}
        connection.execute("UPDATE jobs SET hash = 'untouched'")
    with TrialStore(path, create=False), sqlite3.connect(path) as connection:
        assert [row[0] for row in connection.execute("SELECT hash FROM jobs")] == ["untouched"]


def test_old_read_only_store_is_readable_and_stays_unchanged(path: Path) -> None:
    content_before = path.read_bytes()
    with TrialStore(f"sqlite:///file:{path}?mode=ro&uri=true", create=False) as store:
        answers(store)
    assert path.read_bytes() == content_before


def test_interrupted_migration_leaves_the_store_unchanged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sizewright.datasets.trials.job_hashes._rename_runs", breaks)
        with pytest.raises(KeyboardInterrupt):
            TrialStore(path, create=False)
    with sqlite3.connect(path) as connection:
        assert {row[0] for row in connection.execute("SELECT hash FROM jobs")} == {ANN.hashes[1], BOB.hashes[1]}
    with TrialStore(path, create=False) as store:
        answers(store)


def test_hashes_of_a_newer_version_are_refused(path: Path) -> None:
    TrialStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sizewright_meta SET value = '4' WHERE key = 'job_hash_version'")
    with pytest.raises(StoreError, match=r"newer Sizewright \(hashes of jobs of version 4"):
        TrialStore(path)


def test_an_old_export_of_runs_is_read(tmp_path: Path) -> None:
    run = FinishedJob(id="a", name="clicks", job=ANN, outcome=Outcome(status="finished"))
    export_history([run], tmp_path / "runs.json")
    records = json.loads((tmp_path / "runs.json").read_text())
    records[0]["job_hash"] = ANN.hashes[1]
    (tmp_path / "runs.json").write_text(json.dumps(records))
    assert import_history(tmp_path / "runs.json")[0].key == BOB.hash


@pytest.mark.long
def test_an_old_store_in_postgresql_is_renamed_by_one_of_several_who_open_it(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tests.helpers import real_servers

    with real_servers.postgres_server(tmp_path) as url:
        old_store(url)
        with ThreadPoolExecutor(4) as readers:
            for store in readers.map(lambda _: TrialStore(url, create=False), range(4)):
                answers(store)
                store.close()


def test_values_of_variables_are_removed_from_an_old_store(tmp_path: Path) -> None:
    """The second version kept them: they are removed from the rows and from the pages of the file."""
    path = tmp_path / "old.db"
    env = {"DB_PASSWORD": "s3cret-of-ours", "MODE": "plain-of-ours"}
    job = Job.model_validate({"name": "own", "command": {"run": "python t.py", "env": env}})
    old_hash = job.hashes[1]
    with TrialStore(path) as store:
        store.add(Trial(workers=1, ps=1, throughput=100.0, job_hash=old_hash))
        store.history.add([FinishedJob(id="a", name="own", job=job, outcome=Outcome(status="finished"))])
    assert "of-ours" not in path.read_text("latin-1")  # a new store does not contain them either
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sizewright_meta SET value = '2' WHERE key = 'job_hash_version'")
        description = json.loads(job.model_dump_json(by_alias=True))
        description["command"]["env"] = env
        connection.execute("UPDATE jobs SET hash = ?, description = ?", (old_hash, json.dumps(description)))
        record = json.loads(connection.execute("SELECT record FROM finished_jobs").fetchone()[0])
        record["job"]["command"]["env"] = env
        record["job_hash"] = old_hash
        connection.execute("UPDATE finished_jobs SET job_hash = ?, record = ?", (old_hash, json.dumps(record)))
        strange = json.dumps(description | {"bounds": "none that this version knows"})
        connection.execute("INSERT INTO jobs VALUES ('ffffffffffff', ?)", (strange,))
        other_row = ("b", "eeeeeeeeeeee", "own", json.dumps(record | {"id": "b", "job_hash": "eeeeeeeeeeee"}))
        connection.execute("INSERT INTO finished_jobs (id, job_hash, name, record) VALUES (?, ?, ?, ?)", other_row)
    assert path.read_text("latin-1").count("s3cret-of-ours") == 4
    with TrialStore(path) as store:
        assert [trial.job_hash for trial in store.trials(job=job)] == [job.hash]
        (run,) = store.history.finished(job=job)
        assert run.job
        assert run.job.hash == job.hash
        assert list(run.job.command.env) == list(env)
        assert list(store.history.jobs()) == [job.hash]
    for file in tmp_path.iterdir():
        assert "of-ours" not in file.read_text("latin-1")
