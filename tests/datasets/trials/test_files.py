from __future__ import annotations

import gzip
import tempfile
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sizewright.datasets.traces import read_trace
from sizewright.datasets.trials.column_names import meaning
from sizewright.datasets.trials.files import export_trials, import_trials, read_trials
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError, StoreError
from tests.helpers.trial_strategies import TRIALS

SUFFIXES = pytest.mark.parametrize("suffix", ["csv", "parquet"])


@SUFFIXES
@given(trials=st.lists(TRIALS, min_size=1, max_size=3, unique=True))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_exported_trials_are_imported_unchanged(suffix: str, trials: list[Trial]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trials.{suffix}"
        export_trials(trials, path)
        assert import_trials(path) == trials


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_only_measured_columns_are_required(tmp_path: Path) -> None:
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
    ("text", "message"),
    [
        ("", "is empty"),
        ("workers,ps,throughput\n", "holds no trials"),
        ("workers,ps\n1,1\n", "lacks the column throughput"),
        ("workers,ps,speed\n1,1,1\n", "lacks the column throughput; it has workers, ps, speed.*--map"),
        ("workers,ps,sps,samples/s\n1,1,1,1\n", "sps and samples/s both look like throughput.*--map samples/s="),
        ("workers;ps;throughput\n1;1;1,234\n", "'1,234' could be 1234 or 1.234"),
        ("workers,ps,throughput,worker_memory_bytes\n1,1,1,512\n", "only 512 bytes"),
        ("workers,ps,throughput\n1,1,1.000.000\n", "more than one decimal point"),
        ("workers,ps,throughput,steps\n1,1,1," + "9" * 5000, "steps: .{1,150}$"),
        ("workers,ps,throughput,ps\n1,1,1,1\n", "more than one column 'ps'"),
        ("workers,ps,throughput\n1,1,1\n2,1,fast\n", r"row 2 \(line 3\), throughput: 'fast' is not a number"),
        ("workers,ps,throughput\n1.5,1,1\n", r"row 1 \(line 2\), workers: "),
        ("workers,ps,throughput\n,1,1\n", r"row 1 \(line 2\), workers: is empty"),
        ("workers,ps,throughput,sync\n1,1,1,maybe\n", "sync: .*async.* or .*sync"),
        ("workers,ps,throughput\n1,1\n", "2 cells for 3 columns"),
        ("workers,ps,throughput\n" + "0,1,1\n" * 6, r"row 4 \(line 5\), workers.*; and 2 more"),
    ],
)
def test_invalid_values_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        import_trials(write(tmp_path, text))
    assert caught.value.remedy


def test_invalid_values_in_parquet_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pd.DataFrame({"workers": [1, 0], "ps": [1, 1], "throughput": [1.0, 1.0]}).to_parquet(path)
    with pytest.raises(StoreError, match=r"row 2, workers: .* 1"):
        import_trials(path)


def test_invalid_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("What is this?")
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "latin.csv").write_bytes("workers,ps,throughput,host\n1,1,1,M\xfcnchen\n".encode("latin-1"))
    (tmp_path / "folder.csv").mkdir()
    for name, message in {
        "none.csv": "No table at",
        "folder.csv": "folder",
        "trials.xlsx": "spreadsheet workbook.*read_excel",
        "text.parquet": "not a Parquet file",
        "empty.parquet": "is empty",
        "latin.csv": "UTF-8",
    }.items():
        with pytest.raises(StoreError, match=message):
            import_trials(tmp_path / name)


def test_tables_are_read_by_content_not_by_name(tmp_path: Path) -> None:
    frame = pd.DataFrame({"workers": [1, 2], "ps": [1, 1], "throughput": [1.5, 2.5]})
    frame.to_parquet(tmp_path / "parquet.csv")
    frame.to_csv(tmp_path / "csv.parquet", index=False)
    frame.to_json(tmp_path / "json.csv", orient="records")
    for name in ("parquet.csv", "csv.parquet", "json.csv"):
        assert [(t.workers, t.throughput) for t in import_trials(tmp_path / name)] == [(1, 1.5), (2, 2.5)]


@pytest.mark.parametrize("name", ["trials.csv", "trials.parquet", "trials.json"])
def test_a_workbook_is_known_under_any_name(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    with pytest.raises(StoreError, match="spreadsheet workbook"):
        import_trials(tmp_path / name)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("1.234", "2.345"), None), (("1.234.567", "2.345"), [1234567, 2345]), (("1.234", "2.3456"), [1.234, 2.3456]),
        (("1.234,5", "2.345"), [1234.5, 2345]), (("0.123", "2.345"), [0.123, 2.345]), (("1,234", "2,345"), None),
        (("1,234,567", "2,345"), [1234567, 2345]), (("1,5", "2,345"), [1.5, 2.345]),
    ],
)  # fmt: skip
def test_separators_in_numbers_are_recognised_or_refused_as_ambiguous(
    tmp_path: Path, cells: tuple[str, str], expected: list[float] | None
) -> None:
    """With `;` between cells, decimals may have a comma, and thousands a point."""
    rows = "".join(f"{number};1;{cell}\n" for number, cell in enumerate(cells, 1))
    path = write(tmp_path, f"workers;ps;throughput\n{rows}")
    trace = tmp_path / "trace.csv"
    trace.write_text("job;gpu;arrived_s;duration_s\n" + "".join(f"{c};1;0;{c}\n" for c in cells))
    if expected is None:
        with pytest.raises(StoreError, match=f"'{cells[0]}' could be {cells[0][0]}{cells[0][2:]} or"):
            import_trials(path)
        with pytest.raises(InputError, match=f"'{cells[0]}' could be"):
            read_trace(trace)
    else:
        assert [trial.throughput for trial in import_trials(path)] == expected
        assert read_trace(trace).duration_s.tolist() == expected


def test_decimal_commas_before_a_unit_are_decimal_commas(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "workers;ps;throughput;worker_memory_bytes;duration_s;worker_cpu\n"
        "1;1;5123,5;1,500Gi;12,5;0,5\n2;1;9,1e3;2,5 GiB;1,5 min;1.000m\n",
    )
    first, second = import_trials(path)
    assert (first.throughput, first.worker_memory_bytes, first.duration_s) == (5123.5, 3 << 29, 12.5)
    assert (second.throughput, second.worker_memory_bytes, second.duration_s) == (9100, 5 << 29, 90)
    trace = tmp_path / "trace.csv"
    trace.write_text("arrived_s;duration_s;memory_bytes\n0;1,5h;1,500Gi\n60;90,5;2,5Gi\n")
    jobs = read_trace(trace)
    assert jobs.duration_s.tolist() == [5400, 90.5]
    assert jobs.needs["memory_bytes"].tolist() == [3 << 29, 5 << 29]


def test_names_and_contents_that_disagree_are_read_or_named(tmp_path: Path) -> None:
    text = "workers,ps,throughput\n1,1,5.5\n"
    (tmp_path / "csv.json").write_text(text)
    with zipfile.ZipFile(tmp_path / "ok.zip", "w") as archive:
        archive.writestr("trials.csv", text)
    for name in ("csv.json", "ok.zip"):
        assert [trial.throughput for trial in import_trials(tmp_path / name)] == [5.5]
    (tmp_path / "text.parquet").write_text("One line, of text.\nAnd another.\n")
    with pytest.raises(StoreError, match="is not a Parquet file"):
        import_trials(tmp_path / "text.parquet")


@SUFFIXES
def test_export_to_an_unwritable_path_is_refused(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Cannot write the trials"):
        export_trials([], tmp_path / "file" / f"trials.{suffix}")


def test_export_to_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="neither"):
        export_trials([], tmp_path / "trials.json")


ROWS = [Trial(workers=1, ps=1, throughput=22.3), Trial(workers=2, ps=1, throughput=1045.5)]
PLAIN = "workers,ps,throughput\n1,1,22.3\n2,1,1045.5\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("semicolons.csv", "workers;ps;throughput\n1;1;22,3\n2;1;1045,5\n"),
        ("german.csv", "workers;ps;throughput\n1;1;22,3\n2;1;1.045,5\n"),
        ("french.csv", "workers;ps;throughput\n1;1;22,3\n2;1;1\u202f045,5\n"),
        ("excel.csv", "sep=;\r\nworkers;ps;throughput\r\n1;1;22,3\r\n2;1;1045,50\r\n"),
        ("points.csv", "workers;ps;throughput\n1;1;22.3\n2;1;1045.5\n"),
        ("tabs.tsv", PLAIN.replace(",", "\t")),
        ("tabs.csv", PLAIN.replace(",", "\t")),
        ("bars.txt", PLAIN.replace(",", " | ")),
        ("blanks.txt", PLAIN.replace(",", "  ")),
        ("windows.csv", "\ufeff" + PLAIN.replace("\n", "\r\n")),
        ("old-mac.csv", PLAIN.replace("\n", "\r")),
        ("padded.csv", PLAIN.replace(",", " , ")),
        ("quoted.csv", 'workers,ps,throughput\n1,1,"22.3"\n2,1,"1,045.5"\n'),
        ("comments.csv", "# mine\n\n" + PLAIN.replace("\n2", "\n\n# more\n2")),
        ("numpy.csv", "# " + PLAIN),
        ("pandas.csv", ",workers,ps,throughput\n0,1,1,22.3\n1,2,1,1045.5\n"),
        ("ends.csv", PLAIN.replace("\n", ",\n")),
        ("exponents.csv", PLAIN.replace("1045.5", "1.0455e3").replace("2,", "2.0,")),
        ("lines.jsonl", '{"workers": 1, "ps": 1, "throughput": 22.3}\n{"workers": 2, "ps": "1", "throughput": 1045.5}'),
        ("list.json", '[{"workers":1,"ps":1,"throughput":22.3},{"throughput":"1,045.5","workers":2,"ps":1}]'),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_common_form_of_a_table_is_read_alike(
    tmp_path: Path, name: str, text: str, encoding: str, packed: bool
) -> None:
    data = text.encode(encoding)
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert import_trials(path) == ROWS


@pytest.mark.parametrize("name", ["semi.csv", "sepline.csv", "tab.csv"])
def test_tables_of_spreadsheets_are_read(shared: Path, name: str) -> None:
    first = import_trials(shared / "field" / "X01" / name)[0]
    assert (first.workers, first.ps, first.throughput) == (1, 1, 100 if name == "tab.csv" else 22.3)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("samples_per_sec", "throughput"), ("samples/s", "throughput"), ("Samples/sec", "throughput"),
     ("throughput_samples_per_s", "throughput"), ("Throughput (samples/s)", "throughput"), ("num_workers", "workers"),
     ("#workers", "workers"), ("Workers", "workers"), ("n_ps", "ps"), ("PS", "ps"), ("worker_cores", "worker_cpu"),
     ("bs", "batch_size"), ("batchSize", "batch_size"), ("duration_seconds", "duration_s"), ("note", None),
     ("global_batch_size", None), ("", None)],
)  # fmt: skip
def test_common_column_names_are_recognised(name: str, ours: str | None) -> None:
    assert meaning(name) == ours


def test_other_columns_are_left_out_and_named(tmp_path: Path) -> None:
    text = "num_workers,n_ps,samples_per_sec,note,worker_memory\n1,1,5,x,2Gi\n"
    trials, columns, _ = read_trials(write(tmp_path, text))
    assert trials == [Trial(workers=1, ps=1, throughput=5)]
    assert columns.renamed == {"num_workers": "workers", "n_ps": "ps", "samples_per_sec": "throughput"}
    assert columns.left_out == ("note", "worker_memory")
    assert "(--map worker_memory=worker_memory_bytes reads it)" in columns.describe()
    assert "note," in columns.describe()


def test_columns_are_mapped_by_the_mapping_of_the_user(tmp_path: Path) -> None:
    path = write(tmp_path, "w,ps,speed,steps,throughput\n1,1,5,x,7\n")
    (trial,) = import_trials(path, columns={"w": "workers", "speed": "throughput", "steps": ""})
    assert trial == Trial(workers=1, ps=1, throughput=5)
    for columns, message in (
        ({"w": "wrkers"}, "no column 'wrkers'. Did you mean workers"),
        ({"v": "workers"}, "no column 'v'. It has: w, ps, speed"),
        ({"w": "workers", "ps": "workers"}, "Two columns are mapped to workers"),
    ):
        with pytest.raises(StoreError, match=message):
            import_trials(path, columns=columns)


def test_a_column_of_ps_is_needed_where_there_are_ps(tmp_path: Path) -> None:
    path = write(tmp_path, "workers,throughput\n1,5\n")
    assert read_trials(path, has_ps=False).trials == [Trial(workers=1, ps=0, throughput=5)]
    with pytest.raises(StoreError, match=r"lacks the column ps.*--job FILE of a job without PS"):
        read_trials(path)


def test_nanoseconds_of_pandas_are_dropped(tmp_path: Path) -> None:
    table = pd.DataFrame({"workers": [1, 1], "ps": [1, 1], "throughput": [1.0, 1.0]})
    table["started_at"] = pd.to_datetime(["2026-01-01T12:00:00.123456789", None]).astype("datetime64[ns]")
    table.to_parquet(tmp_path / "mine.parquet")
    first, second = import_trials(tmp_path / "mine.parquet")
    assert first.started_at == datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)
    assert second.started_at is None


def test_a_copied_row_counts_once_and_is_named(tmp_path: Path) -> None:
    text = "workers,ps,throughput\n1,1,1000.123\n2,1,1900.5\n1,1,1000.123\n2,1,1900.5\n"
    table = read_trials(write(tmp_path, text))
    assert len(table.trials) == 2
    assert "2 of 4 rows are copies of others and count once (row 3 (line 4), row 4 (line 5))." in table.describe()


@pytest.mark.parametrize(
    ("header", "first", "second", "kept"),
    [
        ("workers,ps,throughput", "1,1,1250", "1,1,1250", 2),  # so few digits may be equal by chance
        ("workers,ps,throughput", "1,1,12345.6", "1,1,12345.6", 1),
        ("workers,ps,throughput,started_at", "1,1,1250,2026-01-31T10:00:00", "1,1,1250,2026-01-31T10:00:00", 1),
        ("workers,ps,throughput,started_at", "1,1,1250,2026-01-31", "1,1,1250,2026-01-31", 2),  # lacks the time
        ("workers,ps,throughput,started_at", "1,1,12345.6,2026-01-31T10:00:00", "1,1,12345.6,2026-01-31T11:00:00", 2),
        ("workers,ps,throughput,seed", "1,1,12345.6,1", "1,1,12345.6,2", 2),
        (",workers,ps,throughput", "0,1,1,12345.6", "1,1,1,12345.6", 1),  # row labels of pandas
    ],
)
def test_copies_are_distinguished_from_repeats(tmp_path: Path, header: str, first: str, second: str, kept: int) -> None:
    assert len(import_trials(write(tmp_path, f"{header}\n{first}\n{second}\n"))) == kept


def test_a_throughput_of_0_is_named(tmp_path: Path) -> None:
    table = read_trials(write(tmp_path, "workers,ps,throughput,status\n1,1,5,ok\n2,1,0,ok\n4,1,0,failed\n"))
    assert table.notes == ("1 of 3 rows has throughput 0, so no model learns from it (row 2 (line 3)).",)


FRAME = pd.DataFrame({"workers": [1, 2, 4], "ps": [1, 1, 2], "throughput": [1000.5, 1900.25, 3600.125]})
MARKDOWN = (
    "| workers | ps | throughput |\n|--------:|---:|-----------:|\n"
    "| 1 | 1 | 1000.5 |\n| 2 | 1 | 1900.25 |\n| 4 | 2 | 3600.125 |\n"
)
SHELL = (
    "+---------+----+------------+\n| workers | ps | throughput |\n+---------+----+------------+\n"
    "|       1 |  1 |     1000.5 |\n|       2 |  1 |    1900.25 |\n|       4 |  2 |   3600.125 |\n"
    "+---------+----+------------+\n"
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *((f"{form}.json", FRAME.to_json(orient=form)) for form in ("columns", "index", "split", "records", "table")),
        ("lists.json", FRAME.to_json(orient="split").replace('"index":[0,1,2],', "")),
        ("lines.json", FRAME.to_json(orient="records", lines=True)),
        ("wrapped.json", f'{{"trials": {FRAME.to_json(orient="records")}}}'),
        ("table.md", MARKDOWN),
        ("table.txt", MARKDOWN.replace("|\n", "|\r\n")),
        ("shell.txt", SHELL),
        ("excel.txt", FRAME.to_csv(sep="\t", index=False).encode("utf-16")),
        ("german.csv", FRAME.to_csv(sep=";", decimal=",", index=False)),
    ],
)
def test_common_table_formats_are_read(tmp_path: Path, name: str, data: str | bytes) -> None:
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    expected = [Trial.model_validate(row) for row in FRAME.to_dict("records")]
    assert import_trials(tmp_path / name) == expected


def test_a_header_may_come_again_and_a_status_in_capitals(tmp_path: Path) -> None:
    text = "workers,ps,throughput,status\n1,1,5,OK\nworkers,ps,throughput,status\n2,1,6, ok\n"
    assert import_trials(write(tmp_path, text)) == [
        Trial(workers=1, ps=1, throughput=5),
        Trial(workers=2, ps=1, throughput=6),
    ]


@pytest.mark.parametrize(
    ("theirs", "ours", "unit"),
    [
        ("worker_memory_mb", "worker_memory_bytes", "mb"),
        ("mem (GiB)", "ps_memory_bytes", "GiB"),
        ("took_ms", "duration_s", "ms"),
    ],
)
def test_a_column_in_another_unit_is_neither_suggested_nor_mapped(
    tmp_path: Path, theirs: str, ours: str, unit: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"workers,ps,throughput,{theirs}\n1,1,100,5000\n")
    with pytest.raises(StoreError, match=f"is in {unit}, and {ours} is not"):
        read_trials(path, columns={theirs: ours})
    assert "reads it" not in read_trials(path).describe()
