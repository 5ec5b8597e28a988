from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import StoreError
from tests.helpers.trial_strategies import TRIALS


def make(**cells: object) -> Trial:
    return Trial.model_validate({"workers": 2, "ps": 1, "throughput": 100.0} | cells)


@given(trial=TRIALS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_trial_comes_back_equal(trial: Trial) -> None:
    with TrialStore("sqlite://") as store:
        store.add(trial)
        assert store.trials() == [trial]


def test_trials_outlive_the_store_and_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        assert [store.add(make(workers=n)) for n in (3, 1, 2)] == [1, 2, 3]
    with TrialStore(f"sqlite:///{path}", create=False) as store:
        assert [trial.workers for trial in store.trials()] == [3, 1, 2]
        assert store.count() == 3


def test_trials_are_chosen_by_every_argument() -> None:
    with TrialStore("sqlite://") as store:
        for job_hash, series, host in (("a", "1", "x"), ("a", "2", "x"), ("b", "2", "y"), ("a", "2", None)):
            store.add(make(job_hash=job_hash, series=series, host=host))
        assert len(store.trials(job_hash="a")) == 3
        assert len(store.trials(job_hash="a", series="2", host="x")) == 1
        assert store.trials(host="z") == []


def test_marking_a_series_changes_its_ok_trials_only() -> None:
    with TrialStore("sqlite://") as store:
        store.add(make(series="1"))
        store.add(make(series="1", status="oom", message="killed", throughput=None))
        store.add(make(series="2"))
        assert store.mark("1", "void", "drift") == 1
        assert [(t.status, t.message) for t in store.trials()] == [("void", "drift"), ("oom", "killed"), ("ok", None)]
        with pytest.raises(StoreError, match="is not a status of a trial"):
            store.mark("2", "bad", "")  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", [None, timezone.utc, timezone(timedelta(hours=8))])
def test_times_come_back_aware_in_utc(tmp_path: Path, zone: timezone | None) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=zone)
    with TrialStore(tmp_path / "trials.db") as store:
        store.add(make(started_at=noon))
        stored = store.trials()[0].started_at
    assert stored is not None
    assert stored.utcoffset() == timedelta(0)
    assert stored == noon.replace(tzinfo=zone or timezone.utc)


def test_two_processes_can_add_at_the_same_time(tmp_path: Path) -> None:
    script = """
import sys
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
with TrialStore(sys.argv[1]) as store:
    for step in range(20):
        store.add(Trial(workers=1, ps=1, throughput=1.0, steps=step, host=sys.argv[2]))
"""
    path = tmp_path / "trials.db"
    runs = [subprocess.Popen([sys.executable, "-c", script, str(path), host]) for host in ("a", "b")]
    assert [run.wait(60) for run in runs] == [0, 0]
    with TrialStore(path, create=False) as store:
        assert store.count() == 40
        assert [t.steps for t in store.trials(host="a")] == list(range(20))


def test_store_loads_without_pandas_or_the_orm() -> None:
    code = (
        "import sys, sizewright.datasets.trials.store; print([m for m in ('pandas', 'pyarrow', 'sqlalchemy.orm') "
        "if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_missing_or_empty_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for path in (tmp_path / "none.db", tmp_path / "empty.db", tmp_path / "folder" / "none.db"):
        with pytest.raises(StoreError, match=r"no trials at .* yet\. Run: sizewright profile"):
            TrialStore(path, create=False)
    assert not (tmp_path / "none.db").exists()


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")


def _newer(path: Path) -> None:
    TrialStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sizewright_meta SET value = '99'")


def test_store_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as opened:
        opened.add(Trial(workers=1, ps=1, throughput=10.0, other_cpu_used=0.5))
    with sqlite3.connect(path) as connection:
        for name in ("other_cpu_used", "watched_s"):
            connection.execute(f"ALTER TABLE trials DROP COLUMN {name}")
    with TrialStore(path, create=False) as opened:
        assert opened.trials() == [Trial(workers=1, ps=1, throughput=10.0)]
        opened.add(Trial(workers=1, ps=1, throughput=10.0, watched_s=5.0))
        assert opened.trials()[1].watched_s == 5.0


def _without_a_column(path: Path) -> None:
    TrialStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE trials RENAME COLUMN id TO number")


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: path.write_text("workers,ps\n" * 100), "not a database at all"),
        (Path.mkdir, "is a folder"),
        (_foreign, "another application's database"),
        (_newer, "newer Sizewright"),
        (_without_a_column, "lacks the columns id"),
    ],
)
def test_file_that_is_not_a_store_is_refused(tmp_path: Path, prepare, message: str, create: bool) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "trials.db"
    prepare(path)
    with pytest.raises(StoreError, match=message) as caught:
        TrialStore(path, create=create)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("oracel://host/trials", "'oracel' is not a supported kind of database"),
        ("sqlite+nothing:///trials.db", "not a supported kind of database"),
        ("not a url://", "cannot be read"),
        ("sqlite:////no/such/folder/trials.db", "folder /no/such/folder .* does not exist"),
    ],
)
def test_invalid_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        TrialStore(url)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StoreError, match=r"needs psycopg2?, which is not installed") as caught:
        TrialStore("postgresql://me:secret@host/trials")
    assert "secret" not in str(caught.value)


def test_a_read_only_store_can_be_read_but_not_written(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        store.add(make())
    with TrialStore(f"sqlite:///file:{path}?mode=ro&uri=true") as store:
        assert store.count() == 1
        with pytest.raises(StoreError, match="read-only"):
            store.add(make())


def test_a_deleted_store_does_not_swallow_trials(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        path.unlink()
        with pytest.raises(StoreError, match="cannot be used"):
            store.add(make())


def test_values_the_database_cannot_hold_are_refused() -> None:
    with TrialStore("sqlite://") as store, pytest.raises(StoreError, match="cannot be used"):
        store.add(make(steps=2**70))


def test_damaged_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with TrialStore(path) as store:
        store.add(make())
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE trials SET workers = 0")
        with pytest.raises(StoreError, match=r"Row 1 of .* is not a trial: workers"):
            store.trials()
