"""Tests of the options and output of `run`; an executor in memory trains the job."""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sizewright import api
from sizewright.api.running import this_host
from sizewright.datasets.runs.history import History
from sizewright.errors import EngineError, InputError, StoreError
from sizewright.executors import registry
from sizewright.executors.session.local import LocalExecutor
from sizewright.runtime.metrics_log import MetricsLog
from sizewright.runtime.plan_files import plan_from_file
from sizewright.spec import Allocation, Gpu, Job, Plan
from sizewright.testing import FakeExecutor

SIZES = ("--workers", 2, "--ps", 1, "--worker-cpu", "500m", "--ps-cpu", 1)


@pytest.fixture
def plan(tmp_path: Path, example: Path) -> Path:
    path = tmp_path / "plan.yaml"
    target = Allocation.of(2, 1, 0.5, 1.0, 512)
    launch = Plan(id="p-1", kind="launch", job=Job.load(example), target=target, reason="")
    path.write_text(LocalExecutor().render(launch))
    return path


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """Replace `local` and `ray` with an executor in memory; `options` are those that it was created with."""
    fake_executor = FakeExecutor(samples=5_000)

    def make(name: str) -> Any:
        def executor(**options: Any) -> FakeExecutor:
            fake_executor.name, fake_executor.options = name, options  # type: ignore[attr-defined]
            return fake_executor

        return executor

    monkeypatch.setattr(registry, "_EXECUTORS", SimpleNamespace(find=make))
    return fake_executor


def test_a_plan_is_trained_to_its_end(call, plan, fake):
    result = call("run", plan, "-o", "json")
    assert result.code == 0
    outcome = json.loads(result.out)
    assert (outcome["status"], outcome["samples"]) == ("finished", 5000)
    assert fake.name == "local"
    assert "2 workers + 1 PS" in result.err
    assert "Finished: 5,000 samples in" in call("run", plan).out


def test_address_and_folders_are_passed_to_the_executor(call, plan, fake):
    call("run", plan, "--address", "h:1", "--folder", "snaps", "--resume", "old", "--samples", 77, "--hang-limit", "1m")
    assert fake.name == "ray"
    folders = {name: str(Path(name).absolute()) for name in ("snaps", "old")}
    assert fake.options == {
        "address": "h:1", "folder": folders["snaps"], "resume": folders["old"], "samples": 77, "hang_s": 60.0,
    }  # fmt: skip


def test_a_job_file_without_sizes_is_sized_and_tuned(call, example, fake, tmp_path):
    log = tmp_path / "decisions.jsonl"
    result = call("run", example, "--decisions", log, "--samples", 1_000_000, "-o", "json")
    assert result.code == 0
    target = fake.calls[0].plan.target
    expected = api.recommend(example, prior="shipped", cluster=this_host()).target
    assert (target.worker, target.batch_size) == (expected.worker, expected.batch_size)
    assert f"Sized: {target.describe()}" in result.err
    assert "Cold start" in result.err
    with api.open_store() as store:
        (run,) = store.history.finished()
    assert run.expected is not None
    assert all(json.loads(line)["job_hash"] == run.key for line in log.read_text().splitlines())
    assert call("run", example, "--no-tune", "--decisions", tmp_path / "none").code == 0
    assert not (tmp_path / "none").exists()


def test_a_dry_run_changes_nothing(call, plan, fake):
    fake.throughput = lambda a: 100.0 * a.cores()
    assert call("run", plan, "--tune", "--dry-run", "--prior", "shipped").code == 0
    assert "adjust" not in {entry.method for entry in fake.calls}


def test_a_command_is_not_tuned(call, fake, tmp_path):
    job = tmp_path / "own.yaml"
    job.write_text("name: own\ncommand: {run: [python, train.py], rendezvous: torchrun}\ntraining: {samples: 100}\n")
    result = call("run", job, "--workers", 1, "--worker-cpu", 1, "--tune")
    assert result.code == 1
    assert "restarts with every change" in result.err
    assert not fake.calls
    assert "cannot be sized" in call("run", job).err


def test_job_file_needs_all_sizes_or_none(call, example, fake):
    incomplete = call("run", example, "--workers", 2, "--ps", 1)
    assert "sizes are missing: --worker-cpu, --ps-cpu" in incomplete.err
    assert call("run", example, *SIZES, "--ps-memory", "1Gi").code == 0
    target = fake.calls[0].plan.target
    assert target == Allocation.of(2, 1, 0.5, 1.0, 512, 0, 2**30)


@pytest.mark.parametrize(("option", "value"), [("--worker-cpu", "two"), ("--worker-cpu", 0), ("--ps-memory", "1Xi")])
def test_invalid_sizes_are_refused_in_one_sentence(call, example, fake, option, value):
    result = call("run", example, *SIZES, option, value)
    assert result.code == 1
    assert len(result.err.strip().splitlines()) == 1
    assert not fake.calls


def test_a_plan_takes_no_sizes(call, plan, fake, tmp_path):
    assert "has an allocation already. Leave out --ps," in call("run", plan, "--ps", 2).err
    assert "No plan file" in call("run", tmp_path / "none.yaml").err
    broken = tmp_path / "broken.yaml"
    broken.write_text(plan.read_text().replace("kind: launch", "kind: keep"))
    assert "of kind 'keep' and cannot launch" in call("run", broken).err


def test_observations_are_written_to_a_file_and_served_on_a_port(call, plan, fake, tmp_path, monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    scrapes: list[str] = []
    observe = fake.observe

    def scrape(handle: Any) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            scrapes.append(answer.read().decode())
        return observe(handle)

    monkeypatch.setattr(fake, "observe", scrape)
    assert call("run", plan, "--metrics", tmp_path / "m.jsonl", "--metrics-port", port).code == 0
    observations = MetricsLog(tmp_path / "m.jsonl").read()
    assert observations[-1].metrics.samples_trained > observations[0].metrics.samples_trained
    assert observations[-1].metrics.allocation
    assert "sizewright_samples_trained_total" in scrapes[-1]
    assert list((tmp_path / "sizewright").iterdir()) == []


def test_invalid_metrics_file_or_port_is_refused_before_the_job_starts(call, plan, fake, tmp_path):
    for options in (["--metrics", tmp_path], ["--metrics-port", 9, "--metrics-host", "no.such.host"]):
        result = call("run", plan, *options)
        assert (result.code, result.err.count("Error: ")) == (1, 1)
    assert not fake.calls


def test_a_failed_job_exits_1(call, plan, fake, monkeypatch):
    observe = fake.observe

    def lose(handle: Any) -> Any:
        fake.fail_replica(handle, "ps-0", cause="oom", recovered_s=None)
        return observe(handle)

    monkeypatch.setattr(fake, "observe", lose)
    result = call("run", plan)
    assert result.code == 1
    assert "Failed: " in result.out
    assert "ps-0: oom, not recovered" in result.out


def test_ctrl_c_prints_the_outcome_and_exits_130(call, plan, fake, monkeypatch):
    def interrupt(_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "observe", interrupt)
    result = call("run", plan, "-o", "json")
    assert result.code == 130
    assert json.loads(result.out)["status"] == "stopped"
    monkeypatch.setattr(fake, "launch", interrupt)
    early = call("run", plan)
    assert (early.code, early.out) == (130, "")


def test_error_of_the_engine_is_printed_in_one_sentence(call, plan, fake):
    fake.fail_next("launch", EngineError("The allocation asks for 9 cores and this host has 2."))
    result = call("run", plan)
    assert result.code == 1
    assert result.err.strip().splitlines()[-1].startswith("Error: The allocation asks for 9 cores")


def test_api_run_takes_files_records_and_executors(plan):
    executor = FakeExecutor(samples=100)
    assert api.run(plan, executor=executor) == api.run(Plan.load(plan), executor=FakeExecutor(samples=100))
    with pytest.raises(InputError, match="apply only to executors that are named"):
        api.run(plan, executor=executor, samples=3)


def test_run_is_recorded_in_the_history_unless_disabled(call, plan, fake, tmp_path):
    assert call("run", plan, "--store", tmp_path / "h.db").code == 0
    with api.open_store(str(tmp_path / "h.db")) as store:
        (run,) = store.history.finished()
        assert (run.outcome.samples, run.executor, run.key) == (5000, "local", Plan.load(plan).job.hash)
        assert list(store.history.jobs()) == [run.key]
    assert call("run", plan, "--store", tmp_path / "none.db", "--no-record").code == 0
    assert not (tmp_path / "none.db").exists()


def test_invalid_store_is_refused_before_the_job_starts(call, plan, fake, tmp_path):
    (tmp_path / "h.db").write_text("no database")
    result = call("run", plan, "--store", tmp_path / "h.db")
    assert (result.code, result.err.count("Error: ")) == (1, 1)
    assert "not a database at all" in result.err
    assert not fake.calls


def test_run_that_cannot_be_recorded_still_prints_its_outcome(call, plan, fake, tmp_path, monkeypatch, caplog):
    def broken(*_: Any) -> Any:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(History, "add", broken)
    result = call("run", plan, "--store", tmp_path / "h.db")
    assert result.code == 0
    assert "The run could not be added to the history: The disk is full." in caplog.text
    assert "5,000 samples" in result.out


@pytest.mark.parametrize(
    ("bounds", "option", "gpu"),
    [
        ("a100:2", None, Gpu(kind="a100", count=2)),
        ([0, 4], "3", Gpu(count=3)),
        ([0, 4], "0", None),
        (None, "1", Gpu(count=1)),
        (None, None, None),
    ],
)
def test_gpus_of_a_worker_are_an_option_or_the_only_number_of_the_bounds(tmp_path, bounds, option, gpu):
    fields = {"command": {"run": "true"}, "bounds": {"worker": {"gpu": bounds}}}
    (tmp_path / "job.yaml").write_text(json.dumps(fields))
    sizes = {"workers": "2", "worker_cpu": "1", **({"worker_gpu": option} if option else {})}
    assert plan_from_file(tmp_path / "job.yaml", sizes).target.worker[0].gpu == gpu


def test_number_of_gpus_that_the_bounds_leave_open_is_asked_for(call, fake, tmp_path):
    fields = {"command": {"run": "true"}, "bounds": {"worker": {"gpu": [1, 4]}}}
    (tmp_path / "job.yaml").write_text(json.dumps(fields))
    result = call("run", str(tmp_path / "job.yaml"), "--workers", "1", "--worker-cpu", "1")
    assert result.code == 1
    assert "these sizes are missing: --worker-gpu" in " ".join(result.err.split())
