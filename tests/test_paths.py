"""Paths of users: relative ones start at the working folder or at the file that names them, `~` is the home folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import sizewright as sw
from sizewright import api
from sizewright.api.applying import load_rails
from sizewright.datasets.trials.files import export_trials, import_trials
from sizewright.datasets.trials.store import TrialStore
from sizewright.executors import get_executor
from sizewright.executors.session.local import LocalExecutor
from sizewright.recommender.control.decisions import DecisionLog
from sizewright.runtime.audit_log import AuditLog
from sizewright.runtime.metrics_log import MetricsLog
from sizewright.runtime.plan_files import launch_plan
from sizewright.runtime.plan_folder import PlanFolder
from sizewright.spec import Allocation, Evidence, Job, Queue
from sizewright.training.command.session import CommandSession

TINY: dict[str, Any] = {
    "name": "tiny", "model": {"tables": {"count": 2, "rows": 50}, "bottom_mlp": [4], "top_mlp": [4]},
    "training": {"batch_size": 16, "samples": 2000},
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's home, with a working folder elsewhere."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def test_run_writes_snapshots_to_the_named_folder_and_resumes_from_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = launch_plan(Job.model_validate(TINY), Allocation.of(1, 1, 1.0, 1.0, 16))
    Path("plan.yaml").write_text(LocalExecutor().render(plan))
    outcome = sw.run("plan.yaml", folder="snapshots", snapshot_s=0.1, samples=1000, record=False)
    assert outcome.status == "finished"
    assert list((home.parent / "work" / "snapshots").glob("*/*"))
    monkeypatch.chdir(home)
    resumed = sw.run("../work/plan.yaml", resume="../work/snapshots", record=False)
    assert (resumed.status, resumed.samples) == ("finished", 2000)
    assert resumed.samples_resumed > 0


def test_a_store_stays_where_it_was_when_the_working_folder_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("a.db", "sqlite:///a.db"):
        with TrialStore(url) as store:
            store.add(sw.Trial(workers=1, ps=1, throughput=1.0))
            monkeypatch.chdir(home)
            store.add(sw.Trial(workers=2, ps=1, throughput=1.0))
            monkeypatch.chdir(home.parent / "work")
    with TrialStore("a.db", create=False) as store:
        assert store.count() == 4
    assert not (home / "a.db").exists()


@pytest.mark.parametrize("url", ["~/s.db", "sqlite:///~/s.db"])
def test_the_home_folder_is_found_in_the_url_of_a_store(home: Path, url: str) -> None:
    with sw.open_store(url, create=True) as store:
        store.add(sw.Trial(workers=1, ps=1, throughput=1.0))
    assert (home / "s.db").is_file()
    assert api.inputs.store_path(url) == home / "s.db"


def test_growing_logs_stay_at_their_first_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [
        AuditLog("ledger.jsonl"),
        DecisionLog("decisions.jsonl"),
        MetricsLog("metrics.jsonl"),
        AuditLog("~/mine.jsonl"),
    ]
    PlanFolder("plans", Job())
    monkeypatch.chdir(home)
    for log in logs:
        log.check()
    created = {str(path.relative_to(home.parent)) for path in home.parent.rglob("*.jsonl")}
    assert created == {"work/ledger.jsonl", "work/decisions.jsonl", "work/metrics.jsonl", "home/mine.jsonl"}
    assert (home.parent / "work" / "plans").is_dir()


def test_executors_are_made_with_paths_from_the_root(home: Path) -> None:
    local: Any = get_executor("local", folder="snaps", resume=Path("~") / "old")
    assert local._options["folder"] == str(home.parent / "work" / "snaps")
    assert local._options["resume"] == str(home / "old")
    direct: Any = LocalExecutor(folder="~/snaps")
    assert direct._options["folder"] == str(home / "snaps")


def test_files_are_found_below_the_home_folder(home: Path, example: Path) -> None:
    (home / "job.yaml").write_text(example.read_text())
    (home / "cluster.yaml").write_text("hosts: [{kind: h, count: 4, cpu: 8, memory: 32Gi}]")
    (home / "rails.yaml").write_text("worker: {replicas: [1, 2]}")
    job = sw.load_job("~/job.yaml")
    trials = [
        sw.Trial(workers=w, ps=p, worker_cpu=1.0, ps_cpu=1.0, throughput=100.0 * w)
        for w in (1, 2, 3, 4) for p in (1, 2)
    ]  # fmt: skip
    export_trials(trials, "~/trials.csv")
    assert len(import_trials("~/trials.csv")) == 8
    assert sw.recommend("~/job.yaml", trials=trials, cluster="~/cluster.yaml").job == job.name
    assert load_rails("~/rails.yaml").worker is not None
    sw.load_prior().save("~/prior.json")
    assert sw.load_prior("~/prior.json").source.endswith("prior.json")
    files, _ = sw.report("~/job.yaml", trials=trials, out="~/r.html")
    assert files == [home / "r.html"]


def test_paths_in_files_are_relative_to_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "own.yaml").write_text("command: {run: python train.py, folder: code}")
    (home / "jobs.yaml").write_text("jobs: [{job: own.yaml, table: ~/t.csv}]")
    (queued,) = Queue.load("../home/jobs.yaml").jobs
    assert (queued.job, queued.table) == (str(home / "own.yaml"), str(home / "t.csv"))
    job = sw.load_job("../home/own.yaml")
    plan = launch_plan(job, Allocation.of(1, 0, 1.0, 1.0, 16))
    Path("plan.yaml").write_text(LocalExecutor().render(plan))
    monkeypatch.chdir("/")
    loaded = sw.Plan.load(home.parent / "work" / "plan.yaml").job.command
    assert loaded is not None
    assert loaded.folder == str(home / "code")
    text = (home.parent / "work" / "plan.yaml").read_text().replace(str(home / "code"), "code")
    (home / "moved.yaml").write_text(text)
    moved = sw.Plan.load(home / "moved.yaml").job.command
    assert moved is not None
    assert moved.folder == str(home / "code")


def test_a_plan_of_a_job_in_python_knows_where_its_files_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job.model_validate({"command": {"run": "python t.py"}})
    evidence = Evidence(trials=1, distinct_allocations=1, model="")
    target = Allocation.of(1, 0, 1.0, 1.0, 16)
    answer = sw.Recommendation(status="ok", job="job", target=target, evidence=evidence, reasons=("x",))
    plan = sw.plan(job, answer)
    monkeypatch.chdir(home)
    assert plan.job.command is not None
    assert plan.job.command.folder == str(home.parent / "work")


def test_a_command_runs_in_the_folder_of_its_job_file(home: Path) -> None:
    (home / "own.yaml").write_text(yaml.safe_dump({"command": {"run": ["python", "-c", "print(1)"]}}))
    with CommandSession(sw.load_job("../home/own.yaml")) as session:
        assert session.job.command is not None
        assert session.job.command.folder == str(home)


def test_data_option_is_relative_to_the_working_folder(home: Path, example: Path) -> None:
    row = "\t".join(["1", *["2"] * 13, *["0a"] * 26]) + "\n"
    (home / "day_1.tsv").write_text(row * 5)
    Path("day_2.tsv").write_text(row * 5)
    assert sw.load_job(example, "day_*.tsv").data.path == str(home.parent / "work" / "day_*.tsv")
    assert sw.load_job(example, "~/day_1.tsv").data.path == str(home / "day_1.tsv")
    assert sw.load_job(example, "~/day_1.tsv").hash == sw.load_job(example, str(home / "day_1.tsv")).hash
