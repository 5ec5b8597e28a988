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


def tables(**fields: Any) -> Job:
    return Job.model_validate({"model": {"tables": fields}})


@pytest.mark.parametrize(
    ("first", "second"),
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
        (tables(rows=500, count=3, dim=8), tables(rows=500, count=3, dim=[8, 8, 8], pooling=[1, 1, 1])),
        (tables(rows="criteo-kaggle", max_rows=1000), tables(rows=Tables().sizes(), max_rows=1000)),
        (Job(), tables(dtype="float32", optimizer="adagrad")),
        (Job(), tables(dtype=["float32"] * 26, optimizer=["adagrad"] * 26)),
        (tables(dtype="int8", rows=9, count=2), tables(dtype=["int8", "int8"], rows=9, count=2)),
    ],
)  # fmt: skip
def test_equivalent_jobs_have_the_same_hash(first: Job, second: Job) -> None:
    assert first.hash == second.hash
    assert differences(first, second) == {}


@pytest.mark.parametrize(
    ("first", "second", "keys"),
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
        (tables(rows=10, count=2), tables(rows=10, count=2, dim=[16, 8]), ["model.tables.dim"]),
        (tables(rows=10, count=2), tables(rows=10, count=2, pooling=3), ["model.tables.pooling"]),
        (Job(), Job().with_batch_size(1024), ["training.batch_size"]),
        (Job(), tables(dtype="float16"), ["model.tables.dtype"]),
        (Job(), tables(optimizer="rowwise_adam"), ["model.tables.optimizer"]),
    ],
)
def test_different_jobs_have_different_hashes_and_differing_keys(first: Job, second: Job, keys: list[str]) -> None:
    assert first.hash != second.hash
    assert list(differences(first, second)) == keys


def test_hashes_of_the_first_version_depend_on_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = clicks("logs/train.txt")
    old_hash = job.hashes[1]
    assert job.hashes[0] == job.hash != old_hash
    assert clicks(f"{tmp_path}/logs/train.txt").hashes[1] == old_hash
    monkeypatch.chdir("/")
    assert clicks("logs/train.txt").hashes[1] != old_hash
    # computed by an older Sizewright in the folder /
    first_tables = {"model": {"tables": {"rows": list(FIRST_CRITEO_ROWS)}}}  # the meaning of the default at that time
    old = Job.model_validate({"data": {"format": "criteo", "path": "/clicks/train.txt"}} | first_tables)
    assert old.hashes[1] == "644c7e834155"
    assert command("python /srv/train.py", "/srv").hashes[1] == "dbffe1a60aae"


def test_hash_covers_names_of_secrets_and_values_of_settings() -> None:
    a, b = command("python a.py", MODE="fast", DB_PASSWORD="1"), command("python a.py", MODE="fast", DB_PASSWORD="2")
    assert a.hash == b.hash != command("python a.py", MODE="slow", DB_PASSWORD="1").hash
    assert a.hash != command("python a.py", MODE="fast").hash


def test_hashes_of_the_second_version_are_recognised() -> None:
    env = {"MODE": "fast", "DB_PASSWORD": "s3cret", "DATA": "/mnt/x/clicks"}
    job = command("python /srv/train.py --db=postgres://me:pw@h/d", "/srv", **env)
    assert job.hashes[1:] == ("ff361f31029c", "ce532d4f2237")  # computed by an older Sizewright


def test_old_criteo_jobs_keep_their_hash_if_the_named_rows_change(monkeypatch: pytest.MonkeyPatch) -> None:
    by_name, by_list = tables(rows="criteo-kaggle"), tables(rows=FIRST_CRITEO_ROWS)
    old_hash = "6119d3ac283d"
    assert by_list.hash == old_hash
    assert by_list.known_as(old_hash) == by_list
    monkeypatch.setattr("sizewright.spec.model.CRITEO_KAGGLE_ROWS", (*FIRST_CRITEO_ROWS[:-1], 99))
    assert by_name.hash != old_hash
    assert old_hash not in by_name.hashes
    assert by_list.hash == old_hash
    old_job = by_name.known_as(old_hash)
    assert old_job is not None
    assert old_job.model.tables.rows == FIRST_CRITEO_ROWS
    assert by_name.known_as(by_name.hash) == by_name
    assert by_name.known_as("ffffffffffff") is None


@given(folder=st.lists(st.text("abc _-.", min_size=1, max_size=5), max_size=4), name=st.text("xyz*?1", min_size=1))
def test_hash_does_not_depend_on_the_folder(folder: list[str], name: str) -> None:
    prefix = "/" + "".join(f"{part}/" for part in folder)
    assert clicks(prefix + name).hash == clicks(name).hash


def test_paths_in_a_job_file_are_relative_to_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs [1]"
    folder.mkdir()
    (folder / "day_1.tsv").touch()
    (folder / "log.yaml").write_text("data: {format: criteo, path: day_*.tsv}")
    (folder / "own.yaml").write_text("command: {run: python train.py}")
    (folder / "home.yaml").write_text("data: {format: criteo, path: ~/day.tsv}")
    monkeypatch.chdir(tmp_path)
    log, command_job = Job.load("jobs [1]/log.yaml"), Job.load(Path("jobs [1]") / "own.yaml")
    monkeypatch.chdir("/")
    assert command_job.command is not None
    assert command_job.command.folder == str(folder)
    from sizewright.datasets.clicks.files import _paths

    assert log.data.path is not None
    assert _paths(log.data.path) == [str(folder / "day_1.tsv")]
    assert log.hash == clicks("day_*.tsv").hash
    assert Job.load(folder / "home.yaml").data.path == os.path.expanduser("~/day.tsv")


def test_job_from_a_pipe_is_relative_to_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read_end, write_end = os.pipe()
    os.write(write_end, b"command: {run: python train.py}")
    os.close(write_end)
    job = Job.load(f"/dev/fd/{read_end}")
    assert job.command is not None
    assert job.command.folder == str(tmp_path)
