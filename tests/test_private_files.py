"""Files with a user's jobs and data are readable for that user alone."""

from __future__ import annotations

import io
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import sizewright as sw
from sizewright.datasets.files.json_lines import JsonLines
from sizewright.executors.slurm.jobs import SlurmJobs
from sizewright.executors.slurm.step import _write_replica_file
from sizewright.progress import VARIABLE
from sizewright.spec import Allocation, Job, Outcome, Plan, Resources
from sizewright.spec._paths import private
from sizewright.training.command.logs import Log
from sizewright.training.command.rendezvous import ReplicaSlot
from sizewright.training.ps.snapshot_files import SnapshotInfo, lock_folder, write_snapshot


def store(folder: Path) -> None:
    with sw.open_store(folder / "trials.db", create=True) as opened:
        opened.add_all([sw.Trial(workers=1, ps=1, throughput=1.0)])
        opened.history.add_job(Job(name="ctr"))


def snapshot(folder: Path) -> None:
    rows, dense = np.zeros((3, 4), np.float32), np.zeros((2, 1), np.float32)
    arrays = {"keys": np.arange(3), "weights": rows, "state": rows, "dense": dense, "dense_state": dense}
    with lock_folder(folder):
        write_snapshot(folder, SnapshotInfo(Job().hash, 3, []), arrays, lambda _: None)


def log(folder: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"a line\n")
    os.close(write_end)
    Log(io.FileIO(read_end), folder / "worker-0.log", lambda text, at_s: None).close()  # type: ignore[arg-type]


def ledger(folder: Path) -> None:
    JsonLines(folder / "plans.jsonl", Outcome, "outcomes").append(Outcome(status="finished"))


def slurm(folder: Path) -> None:
    plan = Plan(id="p", kind="launch", job=Job(name="ctr"), target=Allocation.of(1, 0, 1.0, 0.0, 64), reason="x")
    jobs = SlurmJobs(folder)
    with jobs.lock():
        record = jobs.create(plan, 0.0)
        jobs.write(record, 0, {"plan.json": "{}", "job.sh": "#!/bin/sh"})
    _write_replica_file(folder / "replica.json", ReplicaSlot("worker", 0, Resources(cpu=1, memory_bytes=0), "h", 1))


def samples(folder: Path) -> None:
    code = "import sizewright; sizewright.log_samples(1)"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {VARIABLE: str(folder)}, check=True)


MAKERS = [store, snapshot, log, ledger, slurm, samples]


@pytest.mark.parametrize("make", MAKERS, ids=lambda each: each.__name__)
def test_file_is_readable_only_for_its_owner(make: Callable[[Path], None], tmp_path: Path) -> None:
    os.umask(before := os.umask(0))
    try:
        os.umask(0)
        make(tmp_path)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("make", MAKERS, ids=lambda each: each.__name__)
def test_another_user_can_read_no_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    make(tmp_path)
    args = ["/bin/sh", "-c", 'for at; do ! test -r "$at" || echo "$at"; done', "sh"]
    files = [str(path) for path in tmp_path.rglob("*") if path.is_file()]
    completed = subprocess.run([*args, *files], user=65534, extra_groups=(), capture_output=True, text=True, check=True)
    assert completed.stdout == ""


TRIAL = sw.Trial(workers=1, ps=1, throughput=1.0)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def opened_to_all(folder: Path) -> list[Path]:
    """Give all files of a folder the mode that earlier versions gave them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        path.chmod(0o644)
    return files


@pytest.mark.parametrize("make", [store, log, ledger], ids=lambda each: each.__name__)
def test_file_of_an_earlier_version_becomes_private_when_it_is_written_again(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path)
    files = opened_to_all(tmp_path)
    make(tmp_path)
    assert {mode_of(path) for path in files} == {0o600}


def test_records_of_slurm_jobs_of_an_earlier_version_become_private(tmp_path: Path) -> None:
    plan = Plan(id="p", kind="launch", job=Job(name="ctr"), target=Allocation.of(1, 0, 1.0, 0.0, 64), reason="x")
    jobs = SlurmJobs(tmp_path)
    with jobs.lock():
        record = jobs.create(plan, 0.0)
        jobs.write(record, 0, {"plan.json": "{}"})
    files = opened_to_all(tmp_path)
    with jobs.lock():
        jobs.save(record)
        jobs.write(record, 0, {"plan.json": "{}"})
    assert {mode_of(path) for path in files} == {0o600}


@pytest.mark.parametrize("create", [True, False])
def test_files_beside_a_store_become_private_with_it(tmp_path: Path, create: bool) -> None:
    store(tmp_path)
    (tmp_path / "link.db").symlink_to(tmp_path / "trials.db")
    with closing(sqlite3.connect(tmp_path / "trials.db")) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("SELECT count(*) FROM trials").fetchone()
        files = opened_to_all(tmp_path)
        assert {"trials.db", "trials.db-wal", "trials.db-shm"} <= {path.name for path in files}
        with sw.open_store(tmp_path / "link.db", create=create) as opened:
            if not create:
                opened.add(TRIAL)
        assert {mode_of(path) for path in files} == {0o600}


def test_reading_changes_no_mode(tmp_path: Path) -> None:
    store(tmp_path)
    ledger(tmp_path)
    files = opened_to_all(tmp_path)
    with sw.open_store(tmp_path / "trials.db") as opened:
        assert opened.count() == 1
        assert len(opened.trials()) == 1
        opened.history.finished()
    assert len(JsonLines(tmp_path / "plans.jsonl", Outcome, "outcomes").read()) == 1
    os.close(private(tmp_path / "plans.jsonl", os.O_RDONLY))
    assert {mode_of(path) for path in files} == {0o644}


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of others")
def test_file_of_another_user_keeps_its_mode(tmp_path: Path) -> None:
    store(tmp_path)
    ledger(tmp_path)
    files = opened_to_all(tmp_path)
    for path in files:
        os.chown(path, 65534, 65534)
    store(tmp_path)
    ledger(tmp_path)
    assert {mode_of(path) for path in files} == {0o644}


def test_pipe_or_device_keeps_its_mode(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o644)
    os.close(private(tmp_path / "pipe", os.O_RDWR))
    assert mode_of(tmp_path / "pipe") == 0o644


def test_file_whose_mode_cannot_be_changed_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str | int, mode: int) -> None:
        raise PermissionError("Operation not permitted")

    store(tmp_path)
    ledger(tmp_path)
    opened_to_all(tmp_path)
    monkeypatch.setattr(os, "chmod", refuse)
    store(tmp_path)
    ledger(tmp_path)
    assert len(JsonLines(tmp_path / "plans.jsonl", Outcome, "outcomes").read()) == 2
