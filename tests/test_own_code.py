"""The examples of users' own code: profiled, recommended, run and changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import sizewright as sw
from sizewright.executors import get_executor
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Allocation, Plan

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "own_code"
TENSORFLOW = "tensorflow-cpu==2.21.0"


@pytest.fixture
def activated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the path and folder as after `source .venv/bin/activate` in the project's folder."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def recommended(job: Path, store: str) -> sw.Recommendation:
    """Return the answer, with more trials while those of a busy host contradict each other."""
    for _ in range(3):
        answer = sw.recommend(job, store=store)
        if not any("contradict each other" in reason for reason in answer.reasons):
            break
        sw.profile(job, store=store, trials=4, accept_drift=True)
    return answer


@pytest.mark.long
@pytest.mark.usefixtures("activated")
def test_code_that_only_prints_a_log_is_profiled_and_sized(tmp_path: Path) -> None:
    store, logs = f"sqlite:///{tmp_path}/trials.db", set(ROOT.glob("sizewright-logs/prints-log-*"))
    trials = sw.profile(EXAMPLES / "prints_log.yaml", store=store, trials=6, accept_drift=True)
    assert len(trials) == 7
    assert {trial.status for trial in trials} == {"ok"}, [trial.message for trial in trials]
    for trial in trials:
        assert trial.throughput
        assert trial.ps == 0
        assert (trial.worker_memory_bytes or 0) > 20 << 20
        assert trial.worker_cpu_used
        assert trial.worker_cpu
        if trial.limited_by == "cgroup":
            assert trial.worker_cpu_used <= 1.05 * trial.worker_cpu
    answer = recommended(EXAMPLES / "prints_log.yaml", store)
    assert answer.status == "ok", answer.reasons
    assert answer.target is not None
    assert answer.target.ps == ()
    plan = sw.plan(EXAMPLES / "prints_log.yaml", answer)
    assert Plan.model_validate(json.loads(plan.model_dump_json(by_alias=True))) == plan
    assert set(ROOT.glob("sizewright-logs/prints-log-*")) == logs


@pytest.mark.usefixtures("activated")
@pytest.mark.long
def test_a_trial_that_fails_stops_no_other_and_leaves_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(
        """
import os, time
from sizewright import log_samples
if os.environ["SIZEWRIGHT_WORKERS"] == "2":
    print("table users: out of range")
    raise SystemExit(9)
while True:
    time.sleep(0.005)
    log_samples(16)
"""
    )
    job = sw.Job.model_validate(
        {
            "name": "own",
            "command": {"run": f"{sys.executable} train.py", "folder": str(tmp_path)},
            "bounds": {"worker": {"replicas": [1, 2], "cpu": [0.2, 0.8]}},
        }
    )
    monkeypatch.chdir(tmp_path)  # the folder of logs
    trials = sw.profile(job, store=f"sqlite:///{tmp_path}/trials.db", trials=4, accept_drift=True)
    assert {trial.status for trial in trials if trial.workers == 1} == {"ok"}
    failed = [trial for trial in trials if trial.workers == 2]
    assert failed
    for trial in failed:
        assert trial.status == "failed"
        assert trial.message
        assert "exit code 9" in trial.message
        assert "table users: out of range" in trial.message
        log = Path(trial.message.split("Its log: ")[1].strip())
        assert log.read_text() == "table users: out of range\n"


@pytest.mark.usefixtures("activated")
def test_torch_distributed_is_run_changed_and_priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = sw.load_job(EXAMPLES / "torch_ddp.yaml").with_samples(10**9)
    assert job.command is not None
    command = job.command.model_copy(update={"run": (*job.command.run, "--checkpoint", f"{tmp_path}/model.pt")})
    job = job.model_copy(update={"command": command})
    monkeypatch.chdir(tmp_path)  # the folder of logs
    local = get_executor("local")
    large, small = Allocation.of(2, 0, 0.6, 1.0, 512), Allocation.of(1, 0, 0.6, 1.0, 512)
    handle = local.launch(launch_plan(job, large))
    adjust = launch_plan(job, small).model_copy(update={"kind": "adjust", "current": large})
    cost_before = local.change_cost(adjust)
    assert not local.wait(handle, 2.0)
    trained = local.observe(handle).samples_trained
    assert trained > 0
    local.adjust(handle, adjust)
    assert (tmp_path / "model.pt").exists()  # written when it was asked to end
    assert local.observe(handle).samples_trained > trained
    cost_after = local.change_cost(adjust)
    assert (cost_before.changes, cost_after.changes) == (0, 1)
    outcome = local.stop(handle)
    assert outcome.status == "stopped"
    assert [change.kind for change in outcome.changes] == ["restart"]


@pytest.mark.usefixtures("activated")
def test_verbs_work_for_own_code_and_report_mistakes(tmp_path: Path) -> None:
    def sizewright(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sizewright.cli.main", *args],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
        )

    (tmp_path / "train.py").write_text(
        """
import time
from sizewright import log_samples
for _ in range(100):
    time.sleep(0.01)
    log_samples(9)
"""
    )
    job = {"name": "own", "command": {"run": f"{sys.executable} train.py"}, "training": {"samples": 900}}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    completed = sizewright("run", "job.yaml", "--workers", "1", "--worker-cpu", "0.5")
    assert completed.returncode == 0, completed.stderr
    assert "Finished: 900 samples" in completed.stdout
    (tmp_path / "train.py").write_text("print('no such table: users'); raise SystemExit(7)")
    failed = sizewright("run", "job.yaml", "--workers", "1", "--worker-cpu", "0.5")
    assert failed.returncode == 1
    assert "exit code 7" in failed.stderr
    assert "no such table: users" in failed.stderr
    assert "Traceback" not in failed.stderr
    refused = sizewright("run", "job.yaml", "--workers", "1", "--worker-cpu", "0.5", "--ps", "1")
    assert refused.returncode == 1
    assert "has no parameter servers" in refused.stderr
    memory = sizewright("memory", "job.yaml")
    assert memory.returncode == 1
    assert "their memory cannot be computed" in memory.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("activated")
def test_torch_distributed_is_profiled_and_sized(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/trials.db"
    trials = sw.profile(EXAMPLES / "torch_ddp.yaml", store=store, trials=6, accept_drift=True)
    assert {trial.status for trial in trials} == {"ok"}, [trial.message for trial in trials]
    assert all(trial.phase_compute_s and trial.phase_data_s for trial in trials)
    answer = recommended(EXAMPLES / "torch_ddp.yaml", store)
    assert answer.status == "ok", answer.reasons


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("activated")
def test_tensorflows_parameter_servers_are_profiled_and_sized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in a separate environment, as the code of users does."""
    venv.create(tmp_path / "tf", with_pip=True)
    python = tmp_path / "tf" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-cache-dir", TENSORFLOW], check=True, timeout=600)
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    store = f"sqlite:///{tmp_path}/trials.db"
    trials = sw.profile(EXAMPLES / "tf_ps.yaml", store=store, trials=7, accept_drift=True)
    good = [trial for trial in trials if trial.status == "ok"]
    assert len(good) >= 7, [trial.message for trial in trials]
    assert all(trial.ps >= 1 and trial.ps_memory_bytes for trial in good)
    answer = recommended(EXAMPLES / "tf_ps.yaml", store)
    assert answer.status == "ok", (answer.reasons, answer.remedies)
    assert answer.target is not None
    assert answer.target.replicas("chief") == 1
