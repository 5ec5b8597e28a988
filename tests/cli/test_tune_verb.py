"""Tests of the options and output of `tune`, on a recorded job or on one that an executor in memory trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sizewright.errors import EngineError
from sizewright.recommender.control.controller import Controller
from sizewright.runtime.remote_run import RemoteRun
from tests.helpers.fake_runs import ONE, recorded_in, running_job

JOB_FILE = """
name: ctr
bounds: {worker: {replicas: [1, 8], cpu: [1, 1]}, ps: {replicas: [1, 4], cpu: [1, 1]}}
training: {samples: 1000000}
objective: time
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "ctr.yaml"
    path.write_text(JOB_FILE)
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return recorded_in(tmp_path)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make passes of the loop follow at once; the returned function calls `ending` after a number of passes."""
    wait = RemoteRun.wait

    def interrupt_after(turns: int, ending: Any) -> None:
        calls: list[int] = []

        def wait_and_count(self: Any, handle: Any, timeout_s: float) -> bool:
            calls.append(1)
            if len(calls) >= turns:
                ending()
            return wait(self, handle, 0.06)

        monkeypatch.setattr(RemoteRun, "wait", wait_and_count)

    return interrupt_after


def test_replay_prints_the_changes_that_it_would_make(call, job, recorded, tmp_path):
    result = call("tune", job, "--replay", recorded, "--plans", tmp_path / "plans")
    assert result.code == 0
    assert "Would change: " in result.out
    assert "Would change: " in result.err
    decisions = json.loads(call("tune", job, "--replay", recorded, "-o", "json", "--change-s", 1e6).out)
    assert {decision["kind"] for decision in decisions} == {"blind", "keep"}
    assert decisions[0]["allocation"] == json.loads(ONE.model_dump_json())
    assert any((tmp_path / "plans").iterdir())


def test_running_job_is_tuned_until_ctrl_c_and_continues_to_train(call, job, hasty, tmp_path):
    def interrupt() -> None:
        raise KeyboardInterrupt

    log = tmp_path / "d.jsonl"
    hasty(5, interrupt)
    with running_job() as fake:
        first = call("tune", job, "--decisions", log, "-o", "json", "--dry-run")
        second = call("tune", "ctr", "--decisions", log, "-o", "json", "--dry-run")
        assert "adjust" not in {entry.method for entry in fake.calls}
    assert (first.code, second.code) == (130, 130)
    numbers = [decision["number"] for result in (first, second) for decision in json.loads(result.out)]
    assert numbers == list(range(len(numbers)))
    assert len(log.read_text().splitlines()) == len(numbers)


def test_end_of_the_run_ends_the_control_loop(call, job, hasty):
    with running_job() as fake:

        def finish_run() -> None:
            fake.clock.step_s = 10_000.0  # type: ignore[attr-defined]

        hasty(3, finish_run)
        result = call("tune", job)
    assert result.code == 0
    assert "decisions: " in result.out


def test_run_with_a_control_loop_refuses_another_until_it_is_paused(call, hasty):
    def interrupt() -> None:
        raise KeyboardInterrupt

    hasty(1, interrupt)
    with running_job(tuned=True):
        refused = call("tune", "ctr")
        assert (refused.code, refused.err.count("Error: ")) == (1, 1)
        assert "tuned by its own loop. Pause that first: sizewright tune ctr-1 --pause" in refused.err
        assert "The control loop of ctr-1 is paused." in call("tune", "ctr", "--pause").out
        assert call("tune", "ctr").code == 130
        status = call("tune", "ctr-1", "--resume", "-o", "json").out
        assert json.loads(status) == {"job": "ctr-1", "paused": False}
        assert "--pause and --resume" in call("tune", "ctr", "--pause", "--resume").err


def test_failed_pass_of_the_control_loop_is_followed_by_the_next(call, monkeypatch, hasty, caplog):
    turn, count = Controller.reconcile, iter(range(99))

    def fail_once(self: Any, look: Any = None) -> Any:
        if next(count) == 1:
            raise EngineError("It does not answer.")
        return turn(self, look)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Controller, "reconcile", fail_once)
    hasty(5, interrupt)
    with running_job():
        result = call("tune", "ctr", "--dry-run", "-o", "json")
    assert len(json.loads(result.out)) >= 2
    assert "One pass of the control loop failed: It does not answer." in caplog.text


def test_change_cost_must_be_a_duration(call, job, recorded):
    result = call("tune", job, "--replay", recorded, "--change-s", "inf")
    assert (result.code, "'inf' is not a duration" in result.err) == (2, True)
    assert call("tune", job, "--replay", recorded, "--change-s", "1m30s").code == 0


def test_invalid_arguments_are_refused_in_one_sentence(call, job, recorded, tmp_path):
    (tmp_path / "junk").write_text("junk")
    mistakes = {
        "No run is called other. Running: nothing.": ["other"],
        "holds no observation of a job": [job, "--replay", tmp_path / "junk"],
        "No recorded metrics at": [job, "--replay", tmp_path / "none"],
        "Cannot write decisions to": [job, "--replay", recorded, "--decisions", tmp_path / "no" / "d.jsonl"],
        "Cannot write plans to": [job, "--replay", recorded, "--plans", tmp_path / "junk"],
        "is not the URL of a Prometheus": [job, "--prometheus", "nonsense"],
        "does not answer": [job, "--prometheus", "http://127.0.0.1:9"],
        "A job is either replayed or read from Prometheus": [job, "--prometheus", "http://h", "--replay", recorded],
        "The cost of a change (change_s) is an option of replays only": [job, "--change-s", 3],
        "No job file at": [tmp_path / "none.yaml", "--replay", recorded],
        "Cannot serve metrics at no.such.host": [
            job, "--replay", recorded, "--metrics-port", 9, "--metrics-host", "no.such.host",
        ],
    }  # fmt: skip
    for sentence, args in mistakes.items():
        result = call("tune", *args)
        assert result.code == 1, sentence
        assert sentence in result.err
        assert result.err.count("Error: ") == 1
