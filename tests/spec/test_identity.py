from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.spec import Job, Tables
from sizewright.spec.identity import differences
from sizewright.spec.model import FIRST_CRITEO_ROWS


def clicks(path: str) -> Job:
    return Job.model_validate({"data": {"format": "criteo", "path": path}})


def command(run: str | list[str], folder: str = ".", **env: str) -> Job:
    return Job.model_validate({"command": {"run": run, "folder": folder, "env": env}})


def tables(**told: Any) -> Job:
    return Job.model_validate({"model": {"tables": told}})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (clicks("/home/ann/day_*.gz"), clicks("/data/bob/day_*.gz")),
        (clicks("train.txt"), clicks("/data/train.txt")),
        (clicks("~/logs/train.txt"), clicks("../train.txt")),
        (clicks("/a/*/part-?.gz"), clicks("/b/c/*/part-?.gz")),
        (clicks("/a/**/x.tsv"), clicks("**/x.tsv")),
        (clicks("/runs [1]/day_[0-9].gz"), clicks("/other/day_[0-9].gz")),
        (command("python train.py"), command("python train.py", "/home/bob/code")),
        (command("/home/ann/venv/bin/python train.py"), command("/opt/venv/bin/python train.py")),
        (command("python train.py --data /home/ann/x.tsv"), command("python train.py --data /srv/x.tsv")),
        (command("python train.py --data=/home/ann/x.tsv"), command("python train.py --data=~/x.tsv")),
        (command(["sh", "-c", "cd /home/ann/code && ./t"]), command(["sh", "-c", "cd /srv/code && ./t"])),
        (command("python t.py", PATH="/home/ann/lib:/home/ann/bin"), command("python t.py", PATH="/a/lib:/b/bin")),
        (tables(rows="criteo-kaggle"), tables(rows=list(Tables().model_copy(update={"max_rows": None}).sizes()))),
        (tables(rows=500, count=3), tables(rows=[500, 500, 500], count=3)),
        (tables(rows="criteo-kaggle", max_rows=1000), tables(rows=Tables().sizes(), max_rows=1000)),
    ],
)  # fmt: skip
def test_the_same_job_in_other_words_or_in_another_place_has_the_same_hash(one: Job, other: Job) -> None:
    assert one.hash == other.hash
    assert differences(one, other) == {}


@pytest.mark.parametrize(
    ("one", "other", "keys"),
    [
        (clicks("a.tsv"), clicks("b.tsv"), ["data.path"]),
        (clicks("day_*.gz"), clicks("day_1.gz"), ["data.path"]),
        (clicks("a.tsv"), Job(), ["data.format", "data.path"]),
        (command("python a.py"), command("python b.py"), ["command.run"]),
        (command("python a.py --lr 0.1"), command("python a.py --lr 0.2"), ["command.run"]),
        (command("python a.py s3://one/x"), command("python a.py s3://two/x"), ["command.run"]),
        (command("python a.py", A="1"), command("python a.py", A="2"), ["command.env.A"]),
        (command("python a.py data/x"), command("python a.py other/x"), ["command.run"]),
        (tables(rows=10, count=2), tables(rows=10, count=3), ["model.tables.count"]),
        (Job(), Job().with_batch_size(1024), ["training.batch_size"]),
    ],
)
def test_another_job_has_another_hash_and_its_differing_keys_are_named(one: Job, other: Job, keys: list[str]) -> None:
    assert one.hash != other.hash
    assert list(differences(one, other)) == keys


def test_hashes_of_the_first_version_are_known_from_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = clicks("logs/train.txt")
    first = job.hashes[1]
    assert job.hashes[0] == job.hash != first
    assert clicks(f"{tmp_path}/logs/train.txt").hashes[1] == first
    monkeypatch.chdir("/")
    assert clicks("logs/train.txt").hashes[1] != first
    # As an older Sizewright computed them, in the folder /.
    first_tables = {"model": {"tables": {"rows": list(FIRST_CRITEO_ROWS)}}}  # what the default stood for
    old = Job.model_validate({"data": {"format": "criteo", "path": "/clicks/train.txt"}} | first_tables)
    assert old.hashes[1] == "644c7e834155"
    assert command("python /srv/train.py", "/srv").hashes[1] == "dbffe1a60aae"


def test_of_a_secret_the_name_alone_counts_and_of_a_plain_setting_the_value() -> None:
    a, b = command("python a.py", MODE="fast", DB_PASSWORD="1"), command("python a.py", MODE="fast", DB_PASSWORD="2")
    assert a.hash == b.hash != command("python a.py", MODE="slow", DB_PASSWORD="1").hash
    assert a.hash != command("python a.py", MODE="fast").hash


def test_hashes_of_the_second_version_are_known() -> None:
    env = {"MODE": "fast", "DB_PASSWORD": "s3cret", "DATA": "/mnt/x/clicks"}
    job = command("python /srv/train.py --db=postgres://me:pw@h/d", "/srv", **env)
    assert job.hashes[1:] == ("ff361f31029c", "ce532d4f2237")  # as an older Sizewright computed them


def test_old_criteo_jobs_keep_their_hash_whatever_the_name_stands_for_today(monkeypatch: pytest.MonkeyPatch) -> None:
    by_name, by_list = tables(rows="criteo-kaggle"), tables(rows=FIRST_CRITEO_ROWS)
    first = "6119d3ac283d"
    assert by_list.hash == first
    assert by_list.known_as(first) == by_list
    monkeypatch.setattr("sizewright.spec.model.CRITEO_KAGGLE_ROWS", (*FIRST_CRITEO_ROWS[:-1], 99))
    assert by_name.hash != first
    assert first not in by_name.hashes
    assert by_list.hash == first
    known = by_name.known_as(first)
    assert known is not None
    assert known.model.tables.rows == FIRST_CRITEO_ROWS
    assert by_name.known_as(by_name.hash) == by_name
    assert by_name.known_as("ffffffffffff") is None


@given(folder=st.lists(st.text("abc _-.", min_size=1, max_size=5), max_size=4), name=st.text("xyz*?1", min_size=1))
def test_the_folder_never_counts(folder: list[str], name: str) -> None:
    where = "/" + "".join(f"{part}/" for part in folder)
    assert clicks(where + name).hash == clicks(name).hash


def test_paths_in_a_job_file_count_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs [1]"
    folder.mkdir()
    (folder / "day_1.tsv").touch()
    (folder / "log.yaml").write_text("data: {format: criteo, path: day_*.tsv}")
    (folder / "own.yaml").write_text("command: {run: python train.py}")
    (folder / "home.yaml").write_text("data: {format: criteo, path: ~/day.tsv}")
    monkeypatch.chdir(tmp_path)
    log, own = Job.load("jobs [1]/log.yaml"), Job.load(Path("jobs [1]") / "own.yaml")
    monkeypatch.chdir("/")
    assert own.command is not None
    assert own.command.folder == str(folder)
    from sizewright.datasets.clicks.files import _paths

    assert log.data.path is not None
    assert _paths(log.data.path) == [str(folder / "day_1.tsv")]
    assert log.hash == clicks("day_*.tsv").hash
    assert Job.load(folder / "home.yaml").data.path == os.path.expanduser("~/day.tsv")


def test_a_job_from_a_pipe_counts_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read, write = os.pipe()
    os.write(write, b"command: {run: python train.py}")
    os.close(write)
    job = Job.load(f"/dev/fd/{read}")
    assert job.command is not None
    assert job.command.folder == str(tmp_path)
