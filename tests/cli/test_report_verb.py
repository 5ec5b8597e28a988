"""Tests of `sizewright report`: a page from a store, pictures, and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from sizewright.datasets.trials.store import TrialStore
from sizewright.recommender.control.decisions import DecisionLog
from sizewright.runtime.audit_log import AuditLog, Entry
from sizewright.runtime.metrics_log import MetricsLog
from sizewright.spec import Allocation, Job
from tests.helpers.finished_runs import decisions_of, observations_of, run_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_report_shows_a_job_and_its_runs(call: Callable[..., Any], store: str, example: Path, folder: Path) -> None:
    with TrialStore(store) as opened:
        opened.history.add([run_of(Job.load(example))])
    result = call("report", example, "--store", store)
    assert result.code == 0
    assert result.out == "report.html\n"
    text = (folder / "report.html").read_text()
    assert "Over time: nightly" in text
    assert "criteo" in text


def test_report_shows_observations_decisions_and_plans_of_the_job(
    call: Callable[..., Any], store: str, example: Path, folder: Path
) -> None:
    job = Job.load(example)
    log, ledger = MetricsLog(folder / "run.jsonl"), AuditLog(folder / "ledger.jsonl")
    for look in observations_of(job, count=8):
        log.append(look)
    target = Allocation.of(2, 1, 0.5, 0.3, 512)
    for name, reason in ((job.name, "it is starved"), ("another", "of no interest")):
        ledger.append(
            Entry(at=datetime(2026, 6, 1, tzinfo=timezone.utc), plan_id="p", kind="adjust", job=name, executor="local",
                  target=target, reason=reason, became="refused", why="the rails")
        )  # fmt: skip
    decisions = DecisionLog(folder / "decisions.jsonl")
    for decision in decisions_of(job):
        decisions.append(decision)
    files = ("--metrics", log.path, "--ledger", ledger.path, "--decisions", decisions.path)
    result = call("report", example, "--store", store, *files)
    assert result.code == 0
    text = Path("report.html").read_text()
    assert "Observations of a run" in text
    assert "it is starved" in text
    assert "refused: the rails" in text
    assert "Four workers save 300 s." in text
    assert "of no interest" not in text


def test_report_needs_no_job_if_the_store_has_only_one(call: Callable[..., Any], store: str, example: Path) -> None:
    without_jobs = call("report", "--store", store)
    assert without_jobs.code == 1
    assert "holds 0 jobs" in without_jobs.err
    with TrialStore(store) as opened:
        opened.history.add_job(Job.load(example))
    assert call("report", "--store", store, "--out", "deep/down.html").code == 0
    assert Path("deep/down.html").exists()
    with TrialStore(store) as opened:
        opened.history.add_job(Job.load(example).with_batch_size(64))
    with_two_jobs = call("report", "--store", store)
    assert with_two_jobs.code == 1
    assert "holds 2 jobs" in with_two_jobs.err
    assert "sizewright report JOB" in with_two_jobs.err


@pytest.mark.parametrize(("form", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_format_option_writes_a_picture_for_each_figure(
    call: Callable[..., Any], store: str, example: Path, form: str, magic: bytes
) -> None:
    result = call("report", example, "--store", store, "--format", form, "--out", "pictures")
    assert result.code == 0
    files = [Path(line) for line in result.out.splitlines()]
    assert {file.stem for file in files} == {"throughput", "pareto", "memory", "predicted"}
    assert all(file.read_bytes().startswith(magic) for file in files)
    assert "Not drawn: Where a step's time goes" in result.err
    data = json.loads(call("report", example, "--store", store, "--format", form, "--out", "again", "-o", "json").out)
    assert len(data["files"]) == len(result.out.splitlines())
    assert data["not_drawn"][0].startswith("Where a step's time goes")


def test_report_without_trials_says_that_data_is_missing(
    call: Callable[..., Any], example: Path, tmp_path: Path
) -> None:
    TrialStore(tmp_path / "empty.db").close()
    assert call("report", example, "--store", tmp_path / "empty.db").code == 0
    assert "Not enough data yet." in Path("report.html").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("report", "nowhere.yaml"), "nowhere.yaml"),
        (("report", "--trials", "t.csv"), "t.csv"),
        (("report", "JOB", "--store", "STORE", "--out", "/proc/none/report.html"), "Choose another path"),
        (("report", "JOB", "--store", "STORE", "--format", "svg", "--out", "/proc/none"), "Choose another path"),
        (("report", "JOB", "--store", "STORE", "--metrics", "none.jsonl"), "There is no file none.jsonl"),
        (("report", "JOB", "--store", "STORE", "--format", "pdf"), "pdf"),
    ],
)
def test_invalid_arguments_are_refused_without_traceback(
    call: Callable[..., Any], store: str, example: Path, args: tuple[str, ...], message: str
) -> None:
    result = call(*({"JOB": example, "STORE": store}.get(arg, arg) for arg in args))
    assert result.code != 0
    assert message in result.err
    assert "Traceback" not in result.err
