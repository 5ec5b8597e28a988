from __future__ import annotations

import gzip
import json
import sqlite3
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
from sizewright.datasets.runs.history_files import export_history, import_history
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import StoreError
from sizewright.spec import Allocation, Estimate, Failure, Job, Outcome

JOB = Job(name="ctr")
ALLOCATION = Allocation.of(2, 1, 1.0, 0.5, 512)


def run(number: int = 0, **fields: object) -> FinishedJob:
    stretches = (
        Segment(at_s=0.0, duration_s=10.0, allocation=ALLOCATION, samples=1000),
        Segment(at_s=10.0, duration_s=40.0, allocation=Allocation.of(4, 1, 1.0, 0.5, 512), samples=8000),
    )
    defaults = {
        "id": f"ctr-{number}",
        "name": "ctr",
        "job": JOB,
        "source": "run",
        "started_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        "stretches": stretches,
        "outcome": Outcome(status="finished", samples=9000, duration_s=50.0),
        "worker": JobUsage(memory_peak_bytes=1 << 30, cpu_used=0.9),
        "expected": Estimate(value=210.0, lower=150.0, upper=260.0),
        "expected_by": "prior",
    }
    return FinishedJob.model_validate(defaults | fields)


def test_runs_and_their_jobs_come_back_as_they_were(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "s.db") as store:
        store.add(Trial(workers=1, ps=1, throughput=1.0))
        assert store.history.add([run(0), run(1), run(0)]) == 2
        assert store.history.add([run(1), run(2)]) == 1
    with TrialStore(tmp_path / "s.db", create=False) as store:
        assert store.history.finished() == [run(0), run(1), run(2)]
        assert store.history.finished(job_hash="another") == []
        assert store.history.finished(job_hash=JOB.hash) == [run(0), run(1), run(2)]
        assert store.history.jobs() == {JOB.hash: JOB}
        assert store.count() == 1


def test_store_without_history_gets_its_tables_with_the_first_record(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "s.db") as store:
        assert store.history.finished() == []
        assert store.history.jobs() == {}
        tables = set(sqlite3.connect(tmp_path / "s.db").execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
        assert ("finished_jobs",) not in tables
        store.history.add_job(JOB)
        store.history.add_job(JOB)
        assert store.history.jobs() == {JOB.hash: JOB}


def test_history_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "s.db") as store:
        store.history.add([run()])
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("UPDATE sizewright_meta SET value = '99' WHERE key = 'history_schema_version'")
    with (
        TrialStore(tmp_path / "s.db") as store,
        pytest.raises(StoreError, match=r"newer Sizewright .finished jobs of version 99"),
    ):
        store.history.finished()


def test_changed_row_is_refused_with_its_id(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "s.db") as store:
        store.history.add([run()])
        with sqlite3.connect(tmp_path / "s.db") as connection:
            connection.execute("""UPDATE finished_jobs SET record = '{"id": "x"}'""")
        with pytest.raises(StoreError, match=r"Run ctr-0 .* is not a valid finished job"):
            store.history.finished()


def test_concurrent_writes_keep_every_run(tmp_path: Path) -> None:
    with TrialStore(tmp_path / "s.db") as store:
        faults: list[BaseException] = []

        def write(first: int) -> None:
            try:
                for number in range(first, first + 5):
                    store.history.add([run(number)])
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=write, args=(3 * k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults
        assert {each.id for each in store.history.finished()} == {f"ctr-{k}" for k in range(14)}


def test_throughput_is_that_of_the_longest_segment() -> None:
    assert run().throughput == 200.0
    assert run(stretches=()).throughput is None
    uncounted = Segment(at_s=0.0, duration_s=99.0, allocation=ALLOCATION)
    assert run(stretches=(uncounted, *run().stretches)).throughput == 200.0


def test_hash_of_another_job_is_refused() -> None:
    with pytest.raises(ValueError, match="job_hash is ffff"):
        run(job_hash="ffff")


def test_expectation_outside_its_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="is not within its interval 1100 to 900"):
        run(expected=Estimate(value=1000.0, lower=1100.0, upper=900.0))


def test_run_that_ran_out_of_memory_is_recognised() -> None:
    assert not run().ran_out_of_memory
    oom = Outcome(status="failed", failures=(Failure(at_s=1.0, replica="ps-0", cause="oom"),))
    assert run(outcome=oom).ran_out_of_memory


def test_json_and_back(tmp_path: Path) -> None:
    export_history([run(0), run(1)], tmp_path / "h.json")
    assert import_history(tmp_path / "h.json") == [run(0), run(1)]
    lines = "\n".join(json.dumps(row) for row in json.loads((tmp_path / "h.json").read_text()))
    (tmp_path / "h.jsonl").write_text(lines)
    assert import_history(tmp_path / "h.jsonl") == [run(0), run(1)]


def test_csv_of_a_platform(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(
        "id,name,status,workers,ps,worker_cpu,ps_cpu,batch_size,duration_s,samples,oom,ps_memory_peak_bytes,"
        "started_at,expected,expected_lower,expected_upper\n"
        "a-1,ctr,finished,4,2,2,1,512,100,50000,,2147483648,2026-01-02T03:04:05,480,400,550\n"
        "a-2,ctr,failed,4,2,2,1,512,30,,true,,,,,\n"
    )
    first, second = import_history(tmp_path / "h.csv", job=JOB)
    assert first.throughput == 500.0
    assert first.key == JOB.hash
    assert first.ps.memory_peak_bytes == 2 << 30
    assert first.started_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert first.expected == Estimate(value=480.0, lower=400.0, upper=550.0)
    assert second.throughput is None
    assert second.ran_out_of_memory


@given(
    workers=st.integers(1, 99), ps=st.integers(0, 9), seconds=st.floats(0.1, 1e6),
    samples=st.none() | st.integers(0, 10**12),
)  # fmt: skip
def test_csv_row_converts_to_a_finished_job(workers: int, ps: int, seconds: float, samples: int | None) -> None:
    from sizewright.datasets.runs.history_files import RunRow

    row = RunRow(id="x", name="x", workers=workers, ps=ps, duration_s=seconds, samples=samples, batch_size=64)
    segment = row.finished(None).stretches[0]
    assert (segment.allocation.replicas("worker"), segment.allocation.replicas("ps")) == (workers, ps)
    assert segment.throughput == (samples / seconds if samples else None)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("h.txt", "", "neither .json nor .csv"),
        ("h.json", "{", "is not JSON"),
        ("h.jsonl", "{}\n{", "one record per line"),
        ("h.json", "[]", "holds no finished jobs"),
        ("h.json", '[{"id": "a"}]', "record 1, name: is missing"),
        ("h.json", "[3]", "record 1, row: must be a mapping of keys and values, got 3"),
        ("h.csv", "", "is empty"),
        ("h.csv", "id,name,duration,workers,batch_size\n", "unknown column 'duration' .did you mean 'duration_s'"),
        (
            "h.csv",
            "id,name,duration_s,workers,batch_size\na,b,-3,1,1\n",
            "row 1 .line 2., duration_s: '-3' is not a duration: it is negative",
        ),
        ("h.csv", "id,name,duration_s,workers,batch_size\na,b,nan,1,1\n", "duration_s"),
        ("h.csv", "id,name,duration_s,workers,batch_size\na,b,inf,1,1\n", "duration_s: 'inf' is not a duration"),
        ("h.csv", f"id,name,duration_s,workers,batch_size,samples\na,b,1,1,1,{10**400}\n", "row 1 .line 2., samples"),
        ("h.csv", "id,name,duration_s,workers,batch_size,expected\na,b,1,1,1,9\n", "expected_lower and expected_upper"),
        ("h.csv", "id,name,duration_s,workers,batch_size\na,b,1,1,1\na,b,2,1,1\n", "1 id more than once"),
        ("h.json", "[" * 100_000, "nested too deeply"),
        ("h.csv", "id,name,duration_s,workers,batch_size\na,b,1\n", "row 1 .line 2. has 3 cells for 5 columns"),
        ("h.csv", "id,name,duration_s,workers,batch_size\na,b,1,1,1,9,9\n", "row 1"),
    ],
)
def test_invalid_file_is_refused_with_a_reason(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match=message):
        import_history(tmp_path / name)


def test_run_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    bad = run(1, outcome=Outcome(status="finished", samples=1, duration_s=float("inf")))
    with TrialStore(tmp_path / "s.db") as store:
        with pytest.raises(StoreError, match="ctr-1"):
            store.history.add([run(0), bad])
        assert store.history.finished() == []


def test_segment_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        Segment(at_s=0, duration_s=1, allocation=Allocation.of(0, 1, 1.0, 1.0, 512))


def test_export_to_another_name_than_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"Name it h\.json"):
        export_history([run()], tmp_path / "h.csv")
    assert list(tmp_path.iterdir()) == []


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No table at"):
        import_history(tmp_path / "no.json")


def test_a_table_of_runs_is_read_as_spreadsheets_write_it(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(
        "sep=;\r\nid;name;duration_s;workers;batch_size;worker_cpu;worker_memory_bytes;samples\r\n"
        "a;b;1h30m;2;1e3;0,5;2Gi;1.000.000\r\n"
    )
    (run,) = import_history(tmp_path / "runs.csv")
    group = run.stretches[0].allocation.worker[0]
    assert (run.outcome.duration_s, run.stretches[0].samples) == (5400, 1_000_000)
    assert (group.cpu, group.memory_bytes, run.stretches[0].allocation.batch_size) == (0.5, 2 * 2**30, 1000)


ROWS = "id,name,status,duration_s,workers,batch_size\na-1,ctr,Succeeded,100,4,512\na-2,ctr,COMPLETED,1e2,4,512\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("h.csv", ROWS.encode()), ("h.csv", ROWS.replace(",", ";").encode()),
        ("h.tsv", ROWS.replace(",", "\t").encode()),
        ("h.csv", b"\xef\xbb\xbf" + ROWS.replace("\n", "\r\n").encode()), ("h.csv", ROWS.replace("\n", "\r").encode()),
        ("h.csv.gz", gzip.compress(ROWS.encode(), mtime=0)), ("h.csv", gzip.compress(ROWS.encode(), mtime=0)),
    ],
)  # fmt: skip
def test_rows_are_read_in_any_wrapping(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    runs = import_history(tmp_path / name)
    assert [(finished.id, finished.outcome.status, finished.outcome.duration_s) for finished in runs] == [
        ("a-1", "finished", 100), ("a-2", "finished", 100),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("h.jsonl", b'{"id": "a"}\n{"id": "b", "na', r"line 2 of .*, its last, is not JSON.*cut short"),
        ("h.json", b"<html>", "is a web page"), ("h.csv", "id".encode("utf-16"), "lacks the columns name"),
        ("h.csv", b"\n \n", "is empty"),
        ("h.csv", gzip.compress(ROWS.encode(), mtime=0)[:-9], "damaged or cut short"),
        ("h.csv", b"PAR1", "is not a Parquet file that can be read"),
    ],
)  # fmt: skip
def test_file_of_another_format_is_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(StoreError, match=message):
        import_history(tmp_path / name)
