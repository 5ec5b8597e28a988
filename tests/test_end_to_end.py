"""The main workflow with real trials, a recommendation and a plan that runs; `make test-long` runs it (minutes)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from sizewright.datasets.trials.store import TrialStore
from sizewright.spec import Plan
from sizewright.training.session import Session
from tests.helpers.processes import as_in_a_terminal, groups_of

pytestmark = pytest.mark.long
COMMAND = [str(Path(sys.executable).parent / "sizewright")]


@pytest.fixture
def small_job(example: Path, tmp_path: Path) -> Path:
    """Return the example with bounds that this host can run."""
    description = yaml.safe_load(example.read_text())
    description["bounds"] = {
        "worker": {"replicas": [1, 2], "cpu": [0.2, 0.5], "memory": ["256Mi", "4Gi"]},
        "ps": {"replicas": [1, 2], "cpu": [0.1, 0.2], "memory": ["128Mi", "4Gi"]},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(description))
    return path


def run(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, timeout=600)


def recommended(job: Path, store: Path, *options: object, data: Sequence[object] = ()) -> dict[str, Any]:
    """Return the answer, with more trials while those of a busy host contradict each other."""
    for _ in range(3):
        result = run("recommend", job, "--store", store, *data, *options, "-o", "json")
        if "contradict each other" not in result.stdout:
            break
        more = run("profile", job, "--store", store, *data, "--trials", 4, "--accept-drift")
        assert more.returncode == 0, more.stderr
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    answer = json.loads(result.stdout)
    assert answer["status"] == "ok"
    return dict(answer)


def test_profile_recommend_and_the_plan_runs(small_job: Path, tmp_path: Path) -> None:
    store, plan_file = tmp_path / "t.db", tmp_path / "plan.yaml"
    profiled = run("profile", small_job, "--store", store, "--accept-drift", "-o", "json")
    assert profiled.returncode == 0, profiled.stderr
    trials = json.loads(profiled.stdout)
    scales = sorted({t["table_scale"] for t in trials})
    assert scales == [1 / 16, 1 / 4, 1]
    assert all(t["status"] == "ok" for t in trials)
    assert all(t["phase_compute_s"] > 0 and t["worker_memory_bytes"] > 0 for t in trials)
    answer = recommended(small_job, store, "--out", plan_file)
    assert answer["evidence"]["trials"] == _count(store) >= len(trials)
    plan = Plan.load(plan_file)
    with Session(plan.job) as session:
        session.scale(plan.target)
        samples_before = sum(w.samples for w in session.observe().of("worker"))
        time.sleep(2)
        assert sum(w.samples for w in session.observe().of("worker")) > samples_before
    assert groups_of(os.getpid()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_the_finished_trials_and_leaves_nothing_running(
    small_job: Path, tmp_path: Path, number: signal.Signals
) -> None:
    store = tmp_path / "t.db"
    scratch = Path(tempfile.mkdtemp(prefix="e2e-"))  # short, because Ray puts its sockets there
    process = subprocess.Popen(
        [*COMMAND, "profile", str(small_job), "--store", str(store), "--accept-drift"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
        preexec_fn=as_in_a_terminal,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and _count(store) < 2:
        time.sleep(0.2)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in stderr
    assert "Finished trials are kept" in stderr
    assert len(started) > 3
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert groups_of(process.pid) == []
    scratch.rmdir()  # fails unless it is empty
    stored = _count(store)
    assert stored >= 2
    if number == signal.SIGTERM:
        return
    assert run("profile", small_job, "--store", store, "--accept-drift").returncode == 0
    with TrialStore(str(store)) as opened:
        trials = opened.trials()
    assert len({t.series for t in trials}) == 1
    assert 9 <= len(trials) <= 12  # it ends when another trial is not worth its cost


def test_real_click_log_is_profiled_and_recommended(example: Path, shared: Path, tmp_path: Path) -> None:
    store, log = tmp_path / "t.db", shared / "data" / "criteo-sample" / "criteo_sample.txt"
    profiled = run("profile", example, "--data", log, "--store", store, "--trials", 8, "--accept-drift")
    assert profiled.returncode == 0, profiled.stderr
    recommended(example, store, data=("--data", log))


def _count(store: Path) -> int:
    if not store.exists() or os.path.getsize(store) == 0:
        return 0
    try:
        with TrialStore(str(store), create=False) as opened:
            return opened.count()
    except Exception:
        return 0
