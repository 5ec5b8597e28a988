"""Files with a user's jobs and data are readable for that user alone."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sizewright as sw
from sizewright.datasets.files.json_lines import JsonLines
from sizewright.executors.slurm.jobs import SlurmJobs
from sizewright.executors.slurm.step import _write_replica_file
from sizewright.progress import VARIABLE
from sizewright.spec import Allocation, Job, Outcome, Plan, Resources
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
