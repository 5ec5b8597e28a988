"""A table that would take too much memory is refused before it is read."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sizewright import api, load_job
from sizewright.datasets import import_history, read_trials
from sizewright.datasets.files import table_files, tables
from sizewright.datasets.files.bounded_parquet import read_parquet
from sizewright.errors import InputError, StoreError


def write_bomb(path: Path, rows: int) -> None:
    """Write the same long text in each row: small on disk, and gigabytes in memory."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 4_000]))
    pq.write_table(pa.table({"throughput": column.cast(pa.string())}), path, compression="zstd")


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, None], "b": ["x", "", None]}, index=pd.Index([5, 6, 7], name="n"))
    frame.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_parquet(tmp_path / "t.parquet").to_pandas(), frame)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[0] * 1_000]), pa.array([{"s": "x" * 1_000}]), pa.array([b"0" * 1_000], pa.binary(1_000)),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=["list", "record", "fixed", "map"],
)  # fmt: skip
def test_lists_and_records_are_refused_before_they_are_read(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "nested.parquet"
    pq.write_table(pa.table({"workers": [1], "more": column}), path)
    with pytest.raises(InputError, match=r"The column more of .*nested.parquet holds .*Leave it out"):
        read_parquet(path)
    with pytest.raises((InputError, StoreError), match="The column more"):
        read_trials(path)


def test_table_beyond_the_memory_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    write_bomb(path, 20_000)
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match=r"takes more than 1.0 MiB when it is read \(20,000 rows of 1 columns\)"):
        read_parquet(path, 1 << 20)


def write_long(path: Path, rows: int, length: int = 60_000) -> None:
    """Write one long text in all rows, in parts of 1,000 rows that are each small."""
    column = pa.array(["x" * length] * 1_000)
    schema = pa.schema({"throughput": pa.string()})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(rows // 1_000):
            writer.write_table(pa.table({"throughput": column}))


@pytest.mark.parametrize("write", [write_bomb, write_long])
def test_reading_it_stays_within_little_memory(tmp_path: Path, write: Callable[[Path, int], None]) -> None:
    """Reading 100,000 rows at once would take 400 MB or 6 GB."""
    path = tmp_path / "bomb.parquet"
    write(path, 100_000)
    program = (
        "import re, sys\nfrom sizewright.datasets import read_trials\n"
        "from sizewright.errors import SizewrightError\n"
        "try: read_trials(sys.argv[1])\n"
        "except SizewrightError as error: print(error)\n"
        # The peak since this program began: `ru_maxrss` includes that of the process which started it.
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read()).group(1))\n"
    )
    completed = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    message, peak = completed.stdout.splitlines()
    assert "takes more than 256.0 MiB" in message
    assert int(peak) < 700_000  # KiB; libraries use a part of it


def test_click_log_with_too_large_rows_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "clicks.parquet"
    columns = {"label": pa.array([0] * 5_000), **{f"i{n}": pa.array([1] * 5_000) for n in range(1, 14)}}
    long = pa.array(["x" * 60_000] * 5_000)
    pq.write_table(pa.table(columns | {f"c{n}": long for n in range(1, 27)}), path, compression="zstd")
    job = load_job({"data": {"format": "criteo", "path": str(path)}, "model": {"tables": {"rows": "from-data"}}})
    with pytest.raises(InputError, match=r"rows of the Parquet file take more than 256.0 MiB when read"):
        api.memory(job)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.json.gz"])
def test_compressed_text_beyond_the_limit_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb", 1) as file:
        file.write(b"workers,ps,throughput\n")
        for _ in range(300):
            file.write(b"1,1,100\n" * (1 << 17))
    with pytest.raises(StoreError, match=r"takes more than 256.0 MiB when it is unpacked"):
        read_trials(path)


SIZES = {
    "rows.csv.gz": b"workers,ps,throughput\n" + b"1,1,100\n" * 200_001,
    "blank.csv.gz": b"workers,ps,throughput\n1,1,1\n" + b"\n" * 2_000_000,
    "breaks.csv.gz": b"workers,ps,throughput\n1,1,1\n" + b"\x0b" * 2_000_000,
    "columns.csv.gz": b"workers,ps,throughput" + b",a" * 10_000 + b"\n",
    "cells.csv.gz": b"workers,ps,throughput\n" + b"," * 5_000_000,
    "cells.json.gz": b'[{"workers": 1}' + b",{}" * 2_500_000 + b"]",
    "rows.json.gz": b"[{}" + b",{}" * 200_000 + b"]",
    "columns.json.gz": b"[{" + b",".join(b'"a%d": 1' % n for n in range(10_001)) + b"}]",
    "lines.jsonl.gz": b"{}\n" + b"1\n" * 5_000_000,
}


@pytest.mark.parametrize("name", SIZES)
def test_table_of_too_many_rows_columns_or_cells_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(SIZES[name], 1))
    what = name.partition(".")[0].replace("blank", "rows").replace("breaks", "rows").replace("lines", "cells")
    with pytest.raises(StoreError, match=rf"has more than [\d,]+ {what}\. Keep only"):
        read_trials(tmp_path / name)


def test_history_of_too_many_values_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.json.gz").write_bytes(gzip.compress(SIZES["cells.json.gz"], 1))
    with pytest.raises(StoreError, match="has more than 5,000,000 cells"):
        import_history(tmp_path / "runs.json.gz")


@pytest.mark.parametrize("kind", [pa.bool_(), pa.null()], ids=str)
def test_values_that_take_no_bytes_in_arrow_count_as_objects(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "small.parquet"
    names = ("workers", "ps", "throughput")
    pq.write_table(pa.table({name: pa.nulls(100_000, kind) for name in names}), path)
    with pytest.raises(InputError, match=r"takes more than 2.0 MiB when it is read \(100,000 rows of 3 columns\)"):
        read_parquet(path, 2 << 20)


def test_parquet_file_of_too_many_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({name: pa.array([1] * 200_001) for name in ("workers", "ps", "throughput")}), path)
    with pytest.raises(StoreError, match="has more than 200,000 rows"):
        read_trials(path)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_names_of_columns_are_checked_before_rows_are_read(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "FileRow", None)
    path = tmp_path / f"trials.{suffix}"
    frame = pd.DataFrame({"workers": [1], "throughput": [2.0]})
    {"parquet": frame.to_parquet, "csv": frame.to_csv, "json": frame.to_json}[suffix](path)
    with pytest.raises(StoreError, match="lacks the column ps"):
        read_trials(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"job,start\n" + b"," * 2_000, r"takes more than 2.0 KiB when it is unpacked"),
        (b'[{"a": 1},' + b"{}," * 2_000 + b"{}]", "has more than 1,000 values"),
        (b"|a|b|\n|--|--|\n" + b"|1|2|\n" * 2_000, "has more than 1,000 values"),
        (b"a," * 11_000 + b"\n", "has more than 10,000 columns"),
    ],
    ids=["cells", "json", "framed", "columns"],
)
def test_trace_that_would_take_too_much_memory_is_refused(
    tmp_path: Path, text: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_MAX_OBJECTS", 1_000)
    if message.startswith("takes"):
        monkeypatch.setattr(tables, "MAX_BYTES", 2 << 10)
    (tmp_path / "trace.csv").write_bytes(text)
    with pytest.raises(InputError, match=message):
        tables.read_table(tmp_path / "trace.csv", "trace")
