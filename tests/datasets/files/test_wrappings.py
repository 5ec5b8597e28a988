"""A click log in a common wrapping is read like the plain log, or refused with the name of its format."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import random
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.datasets.clicks import files as click_files
from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.logs import ClickLog
from sizewright.datasets.clicks.samples import LogSamples
from sizewright.errors import ClickLogError

Rows = list[tuple[str, ...]]
DENSE, TABLES = 2, 3
NAMES = ["label", "I1", "I2", "C1", "C2", "C3"]


def rows_of(count: int, seed: int = 0) -> Rows:
    rng = random.Random(seed)
    return [
        (str(k % 2), str(k), rng.choice(["", "7", "-1"]), *(f"{rng.getrandbits(32):08x}" for _ in range(TABLES)))
        for k in range(count)
    ]


def text_of(rows: Rows, separator: str = "\t", end: str = "\n") -> bytes:
    return "".join(separator.join(row) + end for row in rows).encode()


def log_of(path: Path | str) -> ClickLog:
    return ClickLog(str(path), dense_features=DENSE, tables=TABLES)


def read_batch(path: Path | str) -> Batch:
    return Batch(*(np.concatenate(columns) for columns in zip(*log_of(path).batches(300), strict=True)))


def equal_batches(a: Batch, b: Batch) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


ROWS = rows_of(30_000)
PLAIN = text_of(ROWS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    path = tmp_path_factory.mktemp("plain") / "log"
    path.write_bytes(PLAIN)
    return read_batch(path)


def tar_of(mode: str = "w", **members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(f"dac/{name}.txt")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._train.txt", b"x")
        for name, data in members.items():
            archive.writestr(f"{name}.txt", data)
    return out.getvalue()


def arrow(codec: str) -> Callable[[bytes], bytes]:
    def pack(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as out:
            out.write(data)
        return bytes(sink.getvalue())

    return pack


HALF = PLAIN.index(b"\n", len(PLAIN) // 2) + 1
TEST_SET = text_of([row[1:] for row in ROWS[:10]])
WRAPPED: dict[str, Callable[[], bytes]] = {
    "gz": lambda: gzip.compress(PLAIN, 1),
    "gz in two": lambda: gzip.compress(PLAIN[:777_777], 1) + gzip.compress(PLAIN[777_777:], 1),
    "bz2": lambda: bz2.compress(PLAIN, 1),
    "xz": lambda: lzma.compress(PLAIN, preset=0),
    "zst": lambda: arrow("zstd")(PLAIN),
    "zst in two": lambda: arrow("zstd")(PLAIN[:777_777]) + arrow("zstd")(PLAIN[777_777:]),
    "lz4": lambda: arrow("lz4")(PLAIN),
    "gz in gz": lambda: gzip.compress(gzip.compress(PLAIN, 1), 1),
    "tar": lambda: tar_of(readme=b"Criteo\n", train=PLAIN),
    "tar.gz": lambda: tar_of("w:gz", readme=b"Criteo, 2014\nmore\n", test=TEST_SET, train=PLAIN),
    "tar.zst": lambda: arrow("zstd")(tar_of(train=PLAIN)),
    "tar of gz": lambda: tar_of(day_0=gzip.compress(PLAIN[:HALF], 1), day_1=gzip.compress(PLAIN[HALF:], 1)),
    "zip": lambda: zip_of(readme=b"Criteo\n", train=PLAIN),
    "zip of two": lambda: zip_of(day_0=PLAIN[:HALF], day_1=PLAIN[HALF:]),
    "zip of bz2": lambda: zip_of(train=bz2.compress(PLAIN, 1)),
    "CR": lambda: PLAIN.replace(b"\n", b"\r"),
    "CR in gz": lambda: gzip.compress(PLAIN.replace(b"\n", b"\r"), 1),
    "CRLF": lambda: PLAIN.replace(b"\n", b"\r\n"),
    "BOM": lambda: b"\xef\xbb\xbf" + PLAIN,
    "semicolons": lambda: text_of(ROWS, ";"),
    "bars": lambda: text_of(ROWS, "|"),
    "Ctrl-A": lambda: text_of(ROWS, "\x01"),
    "commas and blanks": lambda: text_of([tuple(NAMES), *ROWS], ", "),
    "quotes": lambda: text_of([tuple(f'"{each}"' for each in row) for row in [tuple(NAMES), *ROWS]], ","),
    "Hive": lambda: text_of([tuple(each or "\\N" for each in row) for row in ROWS]),
    "pandas": lambda: text_of([tuple(NAMES), *(tuple(each or "NaN" for each in row) for row in ROWS)], ","),
    "SQL": lambda: text_of([tuple(each or "NULL" for each in row) for row in ROWS], ";"),
    "Python": lambda: text_of([tuple(each or "None" for each in row) for row in ROWS], "|"),
    "other marks": lambda: (
        text_of([tuple(each or "n/a" for each in row) for row in ROWS[:2000]]) + text_of(ROWS[2000:])
    ),
    "labels as floats": lambda: text_of([(f"{row[0]}.0", *row[1:]) for row in ROWS]),
}


@pytest.mark.parametrize("form", WRAPPED)
def test_a_wrapped_log_reads_as_the_plain_one(form: str, plain: Batch, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(WRAPPED[form]())
    assert equal_batches(read_batch(path), plain)
    log = log_of(path)
    assert log.report.broken == 0
    shards = [batch for k in range(3) for batch in log.batches(1000, shard=(k, 3))]
    assert sum(len(batch.labels) for batch in shards) == len(ROWS)
    samples = pickle.loads(pickle.dumps(LogSamples(log_of(path))))
    for start in (20_000, 5, 29_990, 30_001):
        assert samples.read(start, 5).dense[:, 0].tolist() == plain.dense[start % 30_000 :][:5, 0].tolist()


def frame_of(rows: Rows) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=NAMES).replace("", None)
    return frame.astype({"label": float, "I1": float, "I2": float}).astype({"label": int})


PARQUETS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "by name": lambda frame: frame,
    "in another order": lambda frame: frame[["C2", "I1", "C1", "label", "I2", "C3"]],
    "with more": lambda frame: frame.assign(id=range(len(frame))),
    "by place": lambda frame: frame.rename(columns=dict(zip(NAMES, "abcdef", strict=True))),
    "of TorchRec": lambda frame: frame.rename(
        columns={"I1": "int_0", "I2": "int_1", "C1": "cat_0", "C2": "cat_1", "C3": "cat_2"}
    ),
    "of an index": lambda frame: frame.set_index(pd.Index(np.arange(len(frame)) * 3)),
    "of categories": lambda frame: frame.astype({"C1": "category", "label": bool}),
    "of bytes": lambda frame: frame.assign(C1=frame["C1"].str.encode("ascii")),
    "of text": lambda frame: frame.astype({"label": str}),
    "of small numbers": lambda frame: frame.astype({"label": "int8", "I1": "float32", "I2": "Int16"}),
}


@pytest.mark.parametrize("form", PARQUETS)
def test_parquet_reads_as_the_plain_log(form: str, plain: Batch, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    PARQUETS[form](frame_of(ROWS)).to_parquet(path, row_group_size=7000, compression="zstd")
    assert equal_batches(read_batch(path), plain)
    assert LogSamples(log_of(path)).read(29_000, 3).dense[:, 0].tolist() == plain.dense[29_000:29_003, 0].tolist()


def test_parquet_ids_that_are_numbers_or_contain_tabs_stay_distinct(tmp_path: Path) -> None:
    frame = frame_of(ROWS[:4]).assign(C1=[1, 2, 2, 300], C2=["a\tb", 'a"b', "a\nb", "c"], C3=[1.0, None, 2.0, 1.0])
    frame.to_parquet(tmp_path / "log")
    ids = read_batch(tmp_path / "log").ids
    assert [len(set(column)) for column in ids.T] == [3, 2, 3]
    assert ids[1, 2] == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ORC" + bytes(99), "is an ORC file"), (b"Obj\x01avro", "is an Avro file"),
        (b"7z\xbc\xaf\x27\x1c", "is a 7z archive.*Unpack it: 7z x"), ("0\t1".encode("utf-16"), "UTF-16.*iconv"),
        (b'\n {"label": 0}\n', "is JSON"), (b"<!DOCTYPE html><html>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"1 3:1 5:1 9:1\n", "looks like libsvm"), (PLAIN[:9_000].replace(b"\n", b"\t9\n"), "has 7 tab.*one more"),
        (TEST_SET, "has 5 tab-separated columns.*test set"),
        (gzip.compress(PLAIN[:9000], mtime=0)[:-30], "damaged or cut short.*gzip -t"),
        (bz2.compress(PLAIN[:9000])[:-30], "damaged or cut short.*bzip2 -t"),
        (lzma.compress(PLAIN[:9000])[:-30], "damaged or cut short.*xz -t"),
        (arrow("zstd")(PLAIN[:9000])[:-30], "damaged or cut short.*zstd -t"),
        (zip_of(train=PLAIN[:9000])[:-30], "damaged or cut short.*unzip -t"),
        (tar_of(train=PLAIN[:90_000])[:20_000], "damaged or cut short"),
        (zip_of(readme=b"x", test=TEST_SET), "None of the 2 files"), (zip_of(test=TEST_SET), "test.txt has 5 tab"),
        (b"PAR1" + bytes(99), "Parquet file .* is damaged"), (zip_of(a=b"PAR1"), "holds a Parquet file within another"),
        (text_of([tuple(NAMES[1:] + NAMES[:1]), *ROWS[:3]], ","), "another order: column 1 is I1, expected label"),
    ],
)  # fmt: skip
def test_unsupported_format_is_named(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(ClickLogError, match=f"(?s){message}") as caught:
        read_batch(tmp_path / "log")
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="C3"), "2 numeric columns and 2 tables, but"),
        (lambda frame: frame.rename(columns={"label": "x"}).drop(columns="C3"), r"5 columns \(x, I1, I2"),
        (lambda frame: frame.assign(C1=[[1, 2]] * len(frame)), "Parquet column C1 of .* holds lists"),
    ],
)
def test_parquet_of_other_columns_is_refused(
    change: Callable[[pd.DataFrame], pd.DataFrame], message: str, tmp_path: Path
) -> None:
    change(frame_of(ROWS[:5])).to_parquet(tmp_path / "log")
    with pytest.raises(ClickLogError, match=message):
        read_batch(tmp_path / "log")


def test_encrypted_zip_is_refused(tmp_path: Path) -> None:
    data = bytearray(zip_of(train=PLAIN[:9000]))
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = data.rindex(magic)
        data[position + place] |= 1
    (tmp_path / "log.zip").write_bytes(data)
    with pytest.raises(ClickLogError, match="is encrypted"):
        read_batch(tmp_path / "log.zip")


def test_a_glob_mixes_forms(plain: Batch, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(text_of(ROWS[:100]))
    frame_of(ROWS[100:300]).to_parquet(tmp_path / "b.parquet")
    (tmp_path / "c.csv").write_bytes(gzip.compress(text_of([tuple(NAMES), *ROWS[300:1000]], ";")))
    (tmp_path / "d").write_bytes(zip_of(e=text_of(ROWS[1000:1500]), f=text_of(ROWS[1500:2000])))
    batch = read_batch(tmp_path / "*")
    assert equal_batches(batch, Batch(*(column[:2000] for column in plain)))
    with pytest.raises(ClickLogError, match=r"is a directory.*\*\.(tsv|parquet|csv)"):
        read_batch(tmp_path)


def test_members_that_are_left_out_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dac.tar.gz").write_bytes(tar_of("w:gz", readme=b"Criteo\n", test=TEST_SET, train=PLAIN[:HALF]))
    read_batch(tmp_path / "dac.tar.gz")
    assert "reading dac/train.txt. Skipped, since not a click log: dac/readme.txt, dac/test.txt" in caplog.text
    assert len(caplog.records) == 1


def test_large_archive_is_searched_only_up_to_its_first_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(click_files, "_SCANNED_BYTES", 1000)
    (tmp_path / "t.tar").write_bytes(tar_of(day_0=PLAIN[:HALF], day_1=PLAIN[HALF:]))
    assert [file.member for file in log_of(tmp_path / "t.tar").files] == ["dac/day_0.txt"]
    assert "only dac/day_0.txt is read from it" in caplog.text


def test_broken_rows_name_the_member_and_missing_labels_are_broken(tmp_path: Path) -> None:
    rows = list(ROWS[:1000])
    for line, label in ((10, "NaN"), (20, "\\N"), (30, ""), (40, " "), (50, "-")):
        rows[line] = (label, *rows[line][1:])
    (tmp_path / "log.zip").write_bytes(zip_of(train=text_of(rows)))
    log = log_of(tmp_path / "log.zip")
    assert sum(len(batch.labels) for batch in log.batches(100)) == 995
    assert str(log.report.faults[0]).endswith("log.zip: train.txt, line 11: label 'NaN' is not 0 or 1")


def test_log_of_another_format_gets_no_hint_at_max_broken_share(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(text_of([("-1" if k % 2 else "1", *row[1:]) for k, row in enumerate(ROWS[:2000])]))
    with pytest.raises(ClickLogError, match="Check the format of the log: a label of 0 or 1") as caught:
        read_batch(tmp_path / "log")
    assert "max_broken_share" not in str(caught.value)


def test_memory_for_a_wrapped_log_does_not_grow_with_its_length(tmp_path: Path) -> None:
    longer = PLAIN * 12
    forms = {"plain": longer, "zst": arrow("zstd")(longer), "tar.gz": gzip.compress(tar_of(train=longer), 1)}
    peaks = {}
    for form, data in forms.items():
        (tmp_path / form).write_bytes(data)
        log = log_of(tmp_path / form)
        tracemalloc.start()
        try:
            assert sum(len(batch.labels) for batch in log.batches(1000)) == 12 * len(ROWS)
            peaks[form] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert max(peaks.values()) < peaks["plain"] + (4 << 20) < len(longer) + peaks["plain"]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=600), st.sampled_from(["gz", "bz2", "xz", "zst", "lz4", "tar", "zip", "CR"]), st.data())
def test_any_damage_gives_rows_or_a_click_log_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, form: str, data: st.DataObject
) -> None:
    good = text_of(ROWS[:200])
    packed = {
        "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": arrow("zstd"), "lz4": arrow("lz4"),
        "tar": lambda text: tar_of(train=text), "zip": lambda text: zip_of(train=text),
        "CR": lambda text: text.replace(b"\n", b"\r"),
    }[form](good)  # fmt: skip
    position = data.draw(st.integers(0, len(packed)))
    path = tmp_path_factory.mktemp("damaged") / "log"
    path.write_bytes(packed[:position] + noise + packed[position + len(noise) :])
    with suppress(ClickLogError):
        read_batch(path)


@pytest.mark.parametrize("name", ["cr.tsv", "dac.tar.gz", "day.bz2", "p.parquet", "semi.csv", "train.zip"])
def test_field_logs_are_read(shared: Path, name: str) -> None:
    log = ClickLog(str(shared / "field" / "C01" / name))
    assert sum(len(batch.labels) for batch in log.batches(1000)) == 3000
    assert log.report.broken == 0


@pytest.mark.parametrize("name", ["hive.tsv", "nan.csv"])
def test_marks_of_missing_values_are_missing(shared: Path, name: str) -> None:
    batch = [*ClickLog(str(shared / "field" / "C03" / name)).batches(3000)]
    (plain,) = ClickLog(str(shared / "field" / "C01" / "cr.tsv")).batches(3000)
    assert equal_batches(batch[0], plain)
