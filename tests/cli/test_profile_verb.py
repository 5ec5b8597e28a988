"""Tests of the messages of `profile`; the end-to-end tests run its trials."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
import yaml

from sizewright import api
from sizewright.datasets.clicks.synthetic import SyntheticLog, write_criteo
from sizewright.datasets.trials.trial import Trial
from sizewright.spec import CRITEO_KAGGLE_ROWS, Job


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "day.tsv"
    write_criteo(path, SyntheticLog(CRITEO_KAGGLE_ROWS), 3000)
    return path


def test_broken_rows_are_counted_and_reported(log: Path, example: Path) -> None:
    log.write_text(log.read_text() + "1\tnot a row\n" * 5)
    report = api.check_log(api.load_job(example, str(log)))
    assert report is not None
    assert (report.rows, report.broken) == (3005, 5)


def test_a_log_with_too_many_broken_rows_is_refused_before_anything_starts(call, log, example, tmp_path):
    log.write_text(log.read_text() + "1\tnot a row\n" * 500)
    result = call("profile", example, "--data", log, "--store", tmp_path / "t.db")
    assert result.code == 1
    assert "broken" in result.err
    assert "max_broken_share" in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_truncated_gzip_is_refused_in_one_sentence(call, log, example, tmp_path):
    packed = tmp_path / "day.tsv.gz"
    packed.write_bytes(gzip.compress(log.read_bytes())[:-2000])
    result = call("profile", example, "--data", packed, "--store", tmp_path / "t.db")
    assert result.code == 1
    assert "Traceback" not in result.err


def test_a_profile_without_one_good_trial_exits_1(call, example, tmp_path, monkeypatch):
    failed = Trial(workers=1, ps=1, status="failed", message="it fell over")
    monkeypatch.setattr(api, "profile", lambda *_, **__: [failed])
    result = call("profile", example, "--store", tmp_path / "t.db")
    assert result.code == 1
    assert "it fell over" in result.err


def test_trials_with_one_cause_are_shown_once_and_the_cause_is_named(call, example, tmp_path, monkeypatch):
    def failed(worker: int) -> Trial:
        said = f"Its last lines:\n    import torchrec\n    No module named 'torchrec'\n Its log: {worker}.log"
        return Trial(workers=1, ps=1, status="failed", message=f"worker-{worker} ended with exit code 1.\n{said}")

    monkeypatch.setattr(api, "profile", lambda *_, **__: [failed(0), failed(1)])
    result = call("profile", example, "--store", tmp_path / "t.db")
    assert "2 trials ended as failed, the first so: worker-0 ended" in result.err
    assert "worker-1" not in result.err
    assert "Error: None of 2 trials succeeded: No module named 'torchrec'. Remove the cause" in " ".join(
        result.err.split()
    )
    good = Trial(workers=1, ps=1, throughput=9.0)
    monkeypatch.setattr(api, "profile", lambda *_, **__: [good, failed(1)])
    result = call("profile", example, "--store", tmp_path / "t.db")
    assert "A trial ended as failed: worker-1 ended" in result.err
    assert "1 of 2 trials did not succeed" in result.err
    void = Trial(workers=1, ps=1, status="void", message="other work ran")
    monkeypatch.setattr(api, "profile", lambda *_, **__: [good, void])
    result = call("profile", example, "--store", tmp_path / "t.db")
    assert "Remove" not in result.err


def test_a_gpu_job_is_refused(call, example, tmp_path):
    description = yaml.safe_load(example.read_text())
    description["training"]["device"] = "cuda"
    job = tmp_path / "gpu.yaml"
    job.write_text(yaml.safe_dump(description))
    result = call("profile", job, "--store", tmp_path / "t.db")
    assert result.code == 1
    assert "needs a GPU" in result.err
    assert Job.load(job).training.device == "cuda"


OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory."


@pytest.mark.parametrize(
    "last_line",
    [
        "ValueError: global batch 100 is not divisible by 3 ranks",
        "ValueError: this plan is for 4 ranks, not 1",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed",
        OUT_OF_MEMORY,
    ],
)
def test_what_a_script_says_at_its_end_is_the_cause(call, tmp_path, last_line):
    (tmp_path / "train.py").write_text(f"print('an earlier line'); raise SystemExit({last_line!r})")
    job = {
        "command": {"run": [sys.executable, "train.py"], "folder": str(tmp_path)},
        "bounds": {"worker": {"replicas": 1, "cpu": 0.5}},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    result = call("profile", str(tmp_path / "job.yaml"), "--trials", "1", "--store", str(tmp_path / "trials.db"))
    assert result.code == 1
    cause = "worker-0 ended for lack of memory on its GPU" if last_line == OUT_OF_MEMORY else last_line
    assert f"Error: None of 2 trials succeeded: {cause}. Remove the cause" in " ".join(result.err.split())
