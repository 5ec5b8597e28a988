from __future__ import annotations

import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trial_strategies import TRIALS

from sizewright.datasets.trial_files import export_trials, import_trials
from sizewright.datasets.trials import Trial
from sizewright.errors import StoreError

SUFFIXES = pytest.mark.parametrize("suffix", ["csv", "parquet"])


@SUFFIXES
@given(trials=st.lists(TRIALS, min_size=1, max_size=3))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_exported_is_imported(suffix: str, trials: list[Trial]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trials.{suffix}"
        export_trials(trials, path)
        assert import_trials(path) == trials


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_users_bring_only_what_they_measured(tmp_path: Path) -> None:
    text = "\ufeffps, workers,throughput,steps,host,started_at\n1,4.0,1200.5,1e3,,2026-01-01T12:00:00\n\n2,8,,,NaN,\n"
    text = text.replace("2,8,,", "2,8,3,")
    first, second = import_trials(write(tmp_path, text))
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    assert first == Trial(workers=4, ps=1, throughput=1200.5, steps=1000, started_at=noon)
    assert second == Trial(workers=8, ps=2, throughput=3, host="NaN")


def test_a_failed_trial_has_no_throughput_but_an_ok_one_has(tmp_path: Path) -> None:
    (trial,) = import_trials(write(tmp_path, "workers,ps,throughput,status\n1,1,nan,oom\n"))
    assert trial.status == "oom"
    with pytest.raises(StoreError, match=r"row 1 \(line 2\), throughput: is empty"):
        import_trials(write(tmp_path, "workers,ps,throughput\n1,1,\n"))


def test_parquet_of_pandas_is_read(tmp_path: Path) -> None:
    table = pd.DataFrame({"workers": [1, 2], "ps": [1.0, 2.0], "throughput": [10, 20], "steps": [5.0, None]})
    table.iloc[::-1].to_parquet(tmp_path / "mine.parquet")
    second, first = import_trials(str(tmp_path / "mine.parquet"))
    assert first == Trial(workers=1, ps=1, throughput=10, steps=5)
    assert second == Trial(workers=2, ps=2, throughput=20)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("workers,ps,throughput\n", "holds no trials"),
        ("workers,ps\n1,1\n", "lacks the column throughput"),
        ("workers,ps,throughput,worker_cpus\n1,1,1,1\n", "'worker_cpus' \\(did you mean 'worker_cpu'\\?\\)"),
        ("Workers,ps,throughput\n1,1,1\n", "'Workers' \\(did you mean 'workers'"),
        (",workers,ps,throughput\n0,1,1,1\n", "a column has no name .*index=False"),
        ("workers,ps,throughput,zzzzz\n1,1,1,1\n", r"unknown column 'zzzzz'\. .*: workers, ps, .*started_at"),
        ("workers,ps,throughput,steps\n1,1,1," + "9" * 5000, "steps: .{1,150}$"),
        ("workers,ps,throughput,ps\n1,1,1,1\n", "more than one column 'ps'"),
        ("workers,ps,throughput\n1,1,1\n2,1,fast\n", r"row 2 \(line 3\), throughput: .*number.*'fast'"),
        ("workers,ps,throughput\n1.5,1,1\n", r"row 1 \(line 2\), workers: "),
        ("workers,ps,throughput\n,1,1\n", r"row 1 \(line 2\), workers: is empty"),
        ("workers,ps,throughput,sync\n1,1,1,maybe\n", "sync: input should be 'async' or 'sync'"),
        ("workers,ps,throughput\n1,1\n", "2 cells for 3 columns"),
        ("workers,ps,throughput\n" + "0,1,1\n" * 6, r"row 4 \(line 5\), workers.*; and 2 more"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        import_trials(write(tmp_path, text))
    assert caught.value.remedy


def test_faults_in_parquet_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pd.DataFrame({"workers": [1, 0], "ps": [1, 1], "throughput": [1.0, 1.0]}).to_parquet(path)
    with pytest.raises(StoreError, match=r"row 2, workers: .*greater than or equal to 1"):
        import_trials(path)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("workers,ps,throughput")
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "latin.csv").write_bytes("workers,ps,throughput,host\n1,1,1,M\xfcnchen\n".encode("latin-1"))
    (tmp_path / "folder.csv").mkdir()
    for name, says in {
        "none.csv": "No trial file",
        "folder.csv": "folder",
        "trials.xlsx": "neither .csv nor .parquet",
        "text.parquet": "not a Parquet file",
        "empty.parquet": "not a Parquet file",
        "latin.csv": "UTF-8",
    }.items():
        with pytest.raises(StoreError, match=says):
            import_trials(tmp_path / name)


@SUFFIXES
def test_export_says_why_it_cannot_write(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Cannot write the trials"):
        export_trials([], tmp_path / "file" / f"trials.{suffix}")


def test_export_knows_two_formats(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="neither"):
        export_trials([], tmp_path / "trials.json")


def test_nanoseconds_of_pandas_are_dropped(tmp_path: Path) -> None:
    table = pd.DataFrame({"workers": [1, 1], "ps": [1, 1], "throughput": [1.0, 1.0]})
    table["started_at"] = pd.to_datetime(["2026-01-01T12:00:00.123456789", None]).astype("datetime64[ns]")
    table.to_parquet(tmp_path / "mine.parquet")
    first, second = import_trials(tmp_path / "mine.parquet")
    assert first.started_at == datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)
    assert second.started_at is None
