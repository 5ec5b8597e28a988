from __future__ import annotations

import os
from pathlib import Path

import pytest

from sizewright.datasets.clicks import vocabulary
from sizewright.datasets.clicks.vocabulary import count_rows
from sizewright.spec import Job


def job_of(log: str, **training: int) -> Job:
    description = {"model": {"dense_features": 1, "tables": {"count": 2, "rows": "from-data"}}, "training": training}
    return Job.model_validate(description | {"data": {"format": "criteo", "path": log}})


def write(path: Path, rows: int) -> None:
    path.write_text("".join(f"0\t1\t{i % 7:x}\t{i:x}\n" for i in range(rows)))
    os.utime(path, (1e9 + rows, 1e9 + rows))


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each real count of a log."""
    calls: list[int] = []
    count = vocabulary._count

    def counting(*arguments: object) -> object:
        calls.append(1)
        return count(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(vocabulary, "_count", counting)
    return calls


def cached_files(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "sizewright" / "rows").glob("*"))


def test_log_is_counted_once_until_it_or_the_query_changes(tmp_path: Path, counts: list[int]) -> None:
    log = tmp_path / "a.tsv"
    write(log, 300)
    first = count_rows(job_of(str(log), samples=1000))
    assert count_rows(job_of(str(log), samples=1000)) == first
    assert count_rows(job_of(str(tmp_path / "*.tsv"), samples=1000, batch_size=64)) == first
    assert len(counts) == 1
    count_rows(job_of(str(log), samples=2000))
    assert len(counts) == 2
    write(log, 301)
    assert count_rows(job_of(str(log), samples=1000)).samples_read == 301
    write(tmp_path / "b.tsv", 10)
    assert count_rows(job_of(str(tmp_path / "*.tsv"), samples=1000)).samples_read == 311
    assert len(counts) == 4


def test_count_of_a_recent_log_is_not_cached(tmp_path: Path, counts: list[int]) -> None:
    write(tmp_path / "a.tsv", 300)
    os.utime(tmp_path / "a.tsv")
    for _ in range(2):
        count_rows(job_of(str(tmp_path / "a.tsv")))
    assert len(counts) == 2
    assert not cached_files(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"sha256": 1, "answer": "{}"}', b"\xff\xfe", None])
def test_damaged_cache_file_counts_as_absent(tmp_path: Path, counts: list[int], damage: bytes | None) -> None:
    write(tmp_path / "a.tsv", 300)
    first = count_rows(job_of(str(tmp_path / "a.tsv")))
    (file,) = cached_files(tmp_path)
    file.write_bytes(damage if damage is not None else file.read_bytes().replace(b"300", b"301"))
    assert count_rows(job_of(str(tmp_path / "a.tsv"))) == first
    assert count_rows(job_of(str(tmp_path / "a.tsv"))) == first
    assert len(counts) == 2


def test_unwritable_cache_is_ignored(tmp_path: Path, counts: list[int]) -> None:
    write(tmp_path / "a.tsv", 300)
    (tmp_path / "cache").write_text("a file")
    for _ in range(2):
        assert count_rows(job_of(str(tmp_path / "a.tsv"))).samples_read == 300
    assert len(counts) == 2


def test_oldest_cache_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sizewright.datasets.clicks.row_cache._MAX_FILES", 3)
    for rows in range(10, 16):
        write(tmp_path / "a.tsv", rows)
        count_rows(job_of(str(tmp_path / "a.tsv")))
    assert len(cached_files(tmp_path)) == 3
