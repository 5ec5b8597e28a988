"""Faults of live sessions: all lost or repeated samples are reported, as the servers' counts show."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from sizewright.spec import Allocation
from sizewright.testing.audit import AuditProgram, audit_job, read_counts
from sizewright.training.ps.snapshot_files import resumed_info
from sizewright.training.session import Session
from tests.helpers.live import cut_link, end_tree, processes, run_sequence
from tests.helpers.network.testbed import Bed

ROOT = Path(__file__).resolve().parents[3]
SAMPLES, AT = 400_000, Allocation.of(2, 2, 0.3, 0.2, 32)
pytestmark = [pytest.mark.long, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd")]


def session(folder: Path | None = None, *, hang_s: float = 3.0, **options: object) -> Session:
    return Session(
        audit_job(SAMPLES), samples=SAMPLES, program=AuditProgram(step_s=0.01), recover=True, snapshot_s=0.5,
        folder=folder, hang_s=hang_s, timeout_s=90.0, **options,
    )  # type: ignore[arg-type]  # fmt: skip


def test_cut_links_reopen_without_losses_and_are_reported(tmp_path: Path) -> None:
    """Both processes live on; a checkpoint follows at once."""
    rng = random.Random(1)
    with session() as running:
        running.scale(AT)
        for i in range(8):
            running.wait(0.4)
            pids = running.pids()
            assert cut_link(pids[f"worker-{i % 2}"], rng, to=pids[f"ps-{i // 2 % 2}"])
        running.checkpoint(tmp_path)
        running.wait(0.5)
        outcome = running.outcome()
    updates, dense_count = read_counts(tmp_path, SAMPLES)
    assert set(np.unique(updates)) == {0.0, 1.0}
    assert updates.sum() == dense_count == resumed_info(tmp_path, audit_job(SAMPLES), None).trained.total
    assert (outcome.samples_repeated, outcome.updates_lost) == (0, 0)
    assert {failure.cause for failure in outcome.failures} <= {"link cut", *(f"{n} links cut" for n in range(2, 9))}
    assert len(outcome.failures) >= 4
    assert all((failure.recovered_s or 0) < 3 for failure in outcome.failures)


def test_resume_after_driver_kill_repeats_no_sample(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.helpers.live", str(tmp_path), "60000", "1"]
    with subprocess.Popen(command, cwd=ROOT) as driver:
        folder = tmp_path / "kept"
        while len(list(folder.glob("snapshot-*"))) < 2:
            time.sleep(0.05)
        time.sleep(0.3)  # amid the next
        driver.kill()
    report = run_sequence(1, tmp_path, faults=0, samples=60_000)
    assert report.ended
    assert report.wrong == 0, str(report)


@pytest.mark.parametrize("role", ["ps", "worker"])
def test_stopped_replica_is_replaced_within_the_limit(role: str, tmp_path: Path) -> None:
    with session(hang_s=2.0) as running:
        running.scale(AT)
        running.wait(1.5)
        name = f"{role}-0"
        pid = running.pids()[name]
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        while not (failures := running.outcome().failures):
            assert time.monotonic() - began < 20
            running.wait(0.1)
        assert [(failure.replica, failure.cause) for failure in failures] == [(name, "hung")]
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        before = running.observe().samples_trained
        running.wait(1.0)
        assert running.observe().samples_trained > before
        running.checkpoint(tmp_path)
        outcome = running.outcome()
    updates, _ = read_counts(tmp_path, SAMPLES)
    assert set(np.unique(updates)) == {0.0, 1.0}
    trained = np.zeros(SAMPLES)
    for start, end in resumed_info(tmp_path, audit_job(SAMPLES), SAMPLES).trained:
        trained[start:end] = 1
    assert ((updates != trained).sum() > 0) == (outcome.updates_lost > 0)
    assert (updates != trained).sum() <= 32 * outcome.updates_lost


RAY_GONE = """
import json, os, sys, time
from pathlib import Path
from sizewright.errors import EngineDiedError
from tests.helpers.live import processes
from tests.training.replicas.test_live_faults import AT, session

with session(Path(sys.argv[2])) as running:
    running.scale(AT)
    running.wait(1.5)
    processes(os.getpid(), sys.argv[1])[0].send_signal(int(sys.argv[3]))
    began = time.monotonic()
    try:
        running.wait(60)
    except EngineDiedError as error:
        message = str(error)
    noticed_s = time.monotonic() - began
outcome = running.outcome()
left = [each.name() for each in processes(os.getpid(), "ray::", "raylet", "gcs_server")]
print(json.dumps([message, noticed_s, outcome.status, outcome.samples, left]), flush=True)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_lost_ray_ends_the_session_within_seconds(name: str, sent: signal.Signals, tmp_path: Path) -> None:
    """In a process of its own: Ray itself may end the one that loses it, a minute later."""
    command = [sys.executable, "-c", RAY_GONE, name, str(tmp_path), str(int(sent))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    message, noticed_s, status, samples, processes = json.loads(done.stdout.splitlines()[-1])
    assert "Ray's own processes have ended" in message
    assert noticed_s < (10 if sent == signal.SIGKILL else 20)
    assert (status, processes) == ("failed", [])
    assert 0 < resumed_info(tmp_path, audit_job(SAMPLES), SAMPLES).trained.total <= samples


@pytest.mark.timeout(480)
def test_random_changes_and_faults_match_the_outcome(tmp_path: Path) -> None:
    """Kills, hangs, pauses, cut links; the store, the driver and Ray's own processes: two sequences at a time."""
    folders = [tmp_path / str(seed) for seed in range(500, 504)]
    for folder in folders:
        folder.mkdir()
    try:
        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(lambda folder: run_sequence(int(folder.name), folder), folders))
    finally:
        end_tree_of_children()
    for report in reports:
        assert report.ended, str(report)
        assert report.wrong == 0, str(report)


@pytest.mark.timeout(240)
def test_random_machine_faults_match_the_outcome(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "nsenter"))):
        pytest.skip("network namespaces need root, ip, tc and nsenter")
    with Bed(nodes=3) as bed:
        report = run_sequence(3, tmp_path, bed=bed)
    assert report.ended, str(report)
    assert report.wrong == 0, str(report)


@pytest.mark.timeout(240)
def test_lost_head_ends_the_session_within_seconds(tmp_path: Path) -> None:
    """Ray's own patience is a minute. The last snapshot is there, and a new cluster goes on from it."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc", "nsenter"))):
        pytest.skip("network namespaces need root, ip, tc and nsenter")
    env = {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.helpers.live", str(tmp_path), "400000", "1"]
    with Bed(nodes=2) as bed:
        driver = bed.popen(command, cwd=ROOT, env=env)
        while len(list((tmp_path / "kept").glob("snapshot-*"))) < 2:
            assert driver.poll() is None
            time.sleep(0.05)
        processes(driver.pid, "gcs_server", bed=bed)[0].kill()
        began = time.monotonic()
        assert driver.wait(60) == 3  # as the driver ends where Ray has gone
        assert time.monotonic() - began < 40
        assert processes(driver.pid, "ray::PsActor", "ray::WorkerActor", bed=bed) == []
    assert resumed_info(tmp_path / "kept", audit_job(400_000), 400_000).trained.total > 0


def end_tree_of_children() -> None:
    for process in processes(os.getpid(), sys.executable):
        end_tree(process.pid)
