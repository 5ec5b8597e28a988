from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sizewright.datasets.clicks import logs as click_logs
from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.logs import ClickLog
from sizewright.errors import ClickLogError

HEX = "0123456789abcdef"
numbers = st.one_of(
    st.just(""),
    st.integers(-5, 10**7).map(str),
    st.integers(0, 999).map(lambda n: f"{n}.0"),
    st.sampled_from(["1.25", "3e2"]),
)
tokens = st.one_of(st.just(""), st.text(HEX, min_size=8, max_size=8), st.text("xyz-_0f", min_size=1, max_size=20))
row_of_two = st.tuples(st.sampled_from("01"), numbers, numbers, tokens, tokens, tokens)
SMALL = {"dense_features": 2, "tables": 3}
relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def sample() -> Path:
    shared = Path(os.environ.get("SIZEWRIGHT_SHARED", Path(__file__).resolve().parents[3].parent / "shared"))
    path = shared / "data" / "criteo-sample" / "criteo_sample.txt"
    if not path.exists():
        pytest.skip("the public Criteo sample is not here; set SIZEWRIGHT_SHARED to its folder")
    return path


def write(path: Path, rows: list[tuple[str, ...]], separator: str = "\t", header: bool = False) -> Path:
    lines = [separator.join(row) for row in rows]
    if header:
        lines.insert(0, separator.join(f"name{k}" for k in range(len(rows[0]))))
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def joined(batches: list[Batch]) -> Batch:
    return Batch(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))


def read_batch(path: Path | str, batch_size: int = 1000, **options: object) -> Batch:
    return joined(list(ClickLog(str(path), **(SMALL | options)).batches(batch_size)))  # type: ignore[arg-type]


def equal_batches(a: Batch, b: Batch) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def rows_of(count: int, seed: int = 0) -> list[tuple[str, ...]]:
    rng = np.random.default_rng(seed)
    return [
        (str(k % 2), str(k), "", *(format(int(value), "08x") for value in rng.integers(1, 2**32, 3)))
        for k in range(count)
    ]


def test_values(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log",
        [("1", "3", "", "0000000a", "", "ffffffff"), ("0", "-2", "7.0", "00000000", "FFFFFFFE", "other")],
    )
    batch = read_batch(path)
    assert batch.labels.tolist() == [1.0, 0.0]
    assert batch.dense == pytest.approx(np.log1p([[3, 0], [0, 7]]))
    assert batch.ids[0].tolist() == [10, 0, 2**32 - 1]
    assert batch.ids[1, :2].tolist() == [2**32, 2**32 - 2]
    assert 2**61 <= batch.ids[1, 2] < 2**62
    assert (batch.labels.dtype, batch.dense.dtype, batch.ids.dtype) == (np.float32, np.float32, np.int64)


@relaxed
@given(rows=st.lists(row_of_two, min_size=1, max_size=30))
def test_forms_of_the_same_rows_read_equal(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    plain = read_batch(write(tmp_path / "log.tsv", rows))
    assert len(plain.labels) == len(rows)
    assert equal_batches(plain, read_batch(write(tmp_path / "log.csv", rows, ",", header=True)))
    assert equal_batches(plain, read_batch(write(tmp_path / "log.gz", rows)))
    expected = [[np.log1p(max(float(field or 0), 0)) for field in row[1:3]] for row in rows]
    assert plain.dense == pytest.approx(np.array(expected), rel=1e-5)


@relaxed
@given(
    count=st.integers(1, 400), parts=st.integers(1, 7), batch_size=st.integers(1, 200), block=st.integers(256, 5000),
    packed=st.booleans(),
)  # fmt: skip
def test_shards_cover_every_row_once(
    tmp_path: Path, count: int, parts: int, batch_size: int, block: int, packed: bool
) -> None:
    rows = rows_of(count)
    half = count // 2 + 1
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    for name, part in (("a", rows[:half]), ("b", rows[half:])):
        if part:
            write(folder / f"{name}.log{'.gz' if packed else ''}", part)
    (folder / "c.log").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(click_logs, "BLOCK_BYTES", block)
        shards = [
            list(ClickLog(str(folder / "*"), **SMALL).batches(batch_size, shard=(k, parts))) for k in range(parts)
        ]
    for batches in shards:
        assert all(len(batch.labels) == batch_size for batch in batches[:-1])
    all_rows = joined([batch for batches in shards for batch in batches])
    assert sorted(all_rows.ids[:, 0].tolist()) == sorted(int(row[3], 16) for row in rows)
    if parts == 1:
        assert all_rows.ids[:, 0].tolist() == [int(row[3], 16) for row in rows]


def test_reads_the_public_sample(sample: Path) -> None:
    log = ClickLog(str(sample))
    batch = next(log.batches(1000))
    frame = pd.read_csv(sample)
    assert log.report.rows == len(frame) == 200
    assert log.report.broken == 0
    assert np.array_equal(batch.labels, frame["label"])
    numeric = frame.iloc[:, 1:14].fillna(0).clip(lower=0).to_numpy()
    assert batch.dense == pytest.approx(np.log1p(numeric), rel=1e-5)
    ids = frame.iloc[:, 14:].map(lambda token: int(token, 16) if isinstance(token, str) else 0)
    assert np.array_equal(batch.ids, ids)


def test_windows_lines_quotes_blank_lines_and_byte_order_mark(tmp_path: Path) -> None:
    rows = rows_of(3)
    plain = read_batch(write(tmp_path / "plain", rows))
    text = "\r\n".join(",".join(f'"{field}"' for field in row) for row in rows)
    (tmp_path / "odd").write_bytes(b"\xef\xbb\xbf" + f"a,b,c,d,e,f\r\n{text}\r\n\r\n".encode())
    assert equal_batches(plain, read_batch(tmp_path / "odd"))


def test_other_tokens_hash_alike_in_every_process(tmp_path: Path) -> None:
    path = write(tmp_path / "log", [("0", "", "", "user-1", "a much longer token than eight bytes", "12345")])
    code = (
        "from sizewright.datasets.clicks.logs import ClickLog;"
        f"print(next(ClickLog({str(path)!r}, dense_features=2, tables=3).batches(9)).ids[0].tolist())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    ids = read_batch(path).ids[0].tolist()
    assert out.strip() == str(ids)
    assert len(set(ids)) == 3


def test_tokens_of_all_lengths_get_distinct_ids(tmp_path: Path) -> None:
    rows = [("0", "", "", "x" * k, "y" * k, "z") for k in range(1, 60)]
    ids = read_batch(write(tmp_path / "log", rows)).ids[:, :2]
    assert len(np.unique(ids)) == ids.size


def test_broken_rows_are_left_out_and_reported(tmp_path: Path) -> None:
    rows = rows_of(500)
    rows[3] = rows[3][:-1]
    rows[10] = ("2", *rows[10][1:])
    rows[20] = (rows[20][0], "many", *rows[20][2:])
    rows[30] = ("", *rows[30][1:])
    rows[40] = (rows[40][0], "inf", *rows[40][2:])
    log = ClickLog(str(write(tmp_path / "log", rows)), max_broken_share=0.01, **SMALL)
    batch = joined(list(log.batches(64)))
    assert (log.report.rows, log.report.broken, len(batch.labels)) == (500, 5, 495)
    assert [fault.line for fault in log.report.faults] == [4, 11, 21, 31, 41]
    assert [fault.problem for fault in log.report.faults] == [
        "5 columns instead of 6",
        "label '2' is not 0 or 1",
        "column 2 holds 'many', not a number",
        "label '' is not 0 or 1",
        "column 2 holds 'inf', not a number",
    ]
    data = (tmp_path / "log").read_bytes()
    assert data[log.report.faults[2].offset :].split(b"\n")[0].split(b"\t")[1] == b"many"


def test_lines_are_counted_over_blocks_and_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click_logs, "BLOCK_BYTES", 700)
    rows = rows_of(300)
    rows[250] = ("9", *rows[250][1:])
    log = ClickLog(str(write(tmp_path / "log.csv", rows, ",", header=True)), **SMALL)
    list(log.batches(10))
    assert log.report.faults[0].line == 252


def test_too_many_broken_rows(tmp_path: Path) -> None:
    rows = [("7", *row[1:]) if k % 10 == 0 else row for k, row in enumerate(rows_of(200))]
    path = write(tmp_path / "log", rows)
    with pytest.raises(ClickLogError, match="20 of the first 200 rows") as caught:
        read_batch(path)
    assert "max_broken_share" in caught.value.remedy
    assert len(read_batch(path, max_broken_share=0.2).labels) == 180


def test_log_with_only_broken_rows_is_refused_instead_of_repeated(tmp_path: Path) -> None:
    path = write(tmp_path / "log", [("7", *row[1:]) for row in rows_of(5)])
    with pytest.raises(ClickLogError, match="All 5 rows"):
        next(ClickLog(str(path), max_broken_share=1.0, **SMALL).batches(4, repeat=True))


def test_repeats_in_whole_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "log", rows_of(5))
    batches = ClickLog(str(path), **SMALL).batches(4, repeat=True)
    labels = [next(batches).labels for _ in range(5)]
    assert np.concatenate(labels).tolist() == [0, 1, 0, 1, 0] * 4


def test_a_shard_without_rows(tmp_path: Path) -> None:
    log = ClickLog(str(write(tmp_path / "log", rows_of(1))), **SMALL)
    assert list(log.batches(4, shard=(1, 2))) == []
    with pytest.raises(ClickLogError, match="too small: part 2 of 2"):
        next(log.batches(4, shard=(1, 2), repeat=True))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing", None, "There is no click log at"),
        ("missing*", None, "No file matches"),
        ("empty", b"", "is empty"),
        ("header", b"a,b,c,d,e,f\n", "holds no rows"),
        ("narrow", b"1\t2\t3\n", "has 3 tab-separated columns in its first line.* make 6"),
        ("test_set", b"1\t2\taa\tbb\tcc\n", "has 5 tab-separated columns"),
        ("binary", bytes(range(256)) * 50, "columns? in its first line"),
        ("long", b"x" * (1 << 21), "more than 1 MiB"),
        ("cut.gz", gzip.compress(b"1\t2\t3\ta\tb\tc\n", mtime=0)[:16], "damaged or cut short"),
    ],
)
def test_invalid_click_log_is_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ClickLogError, match=message) as caught:
        read_batch(tmp_path / name)
    assert caught.value.remedy


def test_gzip_cut_short_after_good_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "log.gz", rows_of(20_000))
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ClickLogError, match="cut short"):
        read_batch(path)


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="is a directory"):
        read_batch(tmp_path)


@relaxed
@given(data=st.binary(max_size=400))
def test_bytes_of_any_kind_give_rows_or_a_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "log").write_bytes(b"0\t1\t2\ta\tb\tc\n" + data)
    try:
        batch = read_batch(tmp_path / "log", max_broken_share=1.0)
    except ClickLogError:
        return
    assert np.isfinite(batch.dense).all()
    assert (batch.ids >= 0).all()
