"""The progress of a TrainJob reaches its status, and no server can stop or slow the training."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sizewright import progress
from sizewright.progress import log_samples
from sizewright.trainer_status import TrainerStatus
from tests.helpers.crds import validator
from tests.helpers.status_server import PATH, Push, StatusServer, status_server

SOON_S = 20.0
OF_RANKS = (
    "RANK",
    "WORLD_SIZE",
    "SIZEWRIGHT_INDEX",
    "SIZEWRIGHT_WORKERS",
    "SIZEWRIGHT_SAMPLES",
    "JOB_COMPLETION_INDEX",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StatusServer]:
    with status_server(tmp_path) as running_server:
        yield running_server


@pytest.fixture
def in_trainjob(server: StatusServer, monkeypatch: pytest.MonkeyPatch) -> StatusServer:
    """Let `log_samples` of this process push, as if it had just started."""
    for name in (*OF_RANKS, "SIZEWRIGHT_ROLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress._progress, "_status", None)
    return server


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def status_of(status: TrainerStatus) -> dict[str, Any]:
    body: dict[str, Any] = status.status()["trainerStatus"]
    return body | {"metrics": {each["name"]: each["value"] for each in body["metrics"]}}


def quiet(env: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> TrainerStatus:
    """Return a status that is pushed nowhere."""
    return TrainerStatus("https://127.0.0.1:1/", env, every_s=3600.0, clock=clock)


def test_log_samples_pushes_what_trainer_expects(in_trainjob: StatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWRIGHT_SAMPLES", "1000")
    monkeypatch.setenv("SIZEWRIGHT_WORKERS", "4")
    log_samples(100)
    until(lambda: in_trainjob.pushes)
    push = in_trainjob.pushes[0]
    assert (push.path, push.token) == (PATH, "first")
    pushed = push.body["trainerStatus"]
    assert (pushed["progressPercentage"], pushed["metrics"]) == (40, [{"name": "samples", "value": "400"}])
    assert datetime.fromisoformat(pushed["lastUpdatedTime"].replace("Z", "+00:00")).tzinfo
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "ctr"}}
    validator("TrainJob").validate(job | {"spec": {"runtimeRef": {"name": "x"}}, "status": push.body})


def test_percentage_and_remaining_time_follow_the_samples_of_all_workers() -> None:
    now = [100.0]
    status = quiet({"WORLD_SIZE": "2", "SIZEWRIGHT_WORKERS": "1", "SIZEWRIGHT_SAMPLES": "1000"}, lambda: now[0])
    status.add(50)
    assert "estimatedRemainingSeconds" not in status_of(status), "one report has no rate"
    now[0] = 110.0
    status.add(100)  # 2 workers × 10 samples/s; 300 of 1,000 are trained
    expected = {"progressPercentage": 30, "estimatedRemainingSeconds": 35}
    assert expected.items() <= status_of(status).items()
    assert status_of(status)["metrics"] == {"samples": "300", "samples_per_s": "20"}
    status.add(1000)
    assert {"progressPercentage": 100, "estimatedRemainingSeconds": 0}.items() <= status_of(status).items()


def test_remaining_time_fits_into_the_status() -> None:
    now = [0.0]
    status = quiet({"SIZEWRIGHT_SAMPLES": "9" * 18}, lambda: now[0])
    status.add(1)
    now[0] = 1e6
    status.add(1)
    assert status_of(status)["estimatedRemainingSeconds"] == 2**31 - 1


@pytest.mark.parametrize("samples", ["", "many", "-5", "1e9"])
def test_unknown_number_of_samples_leaves_only_metrics(samples: str) -> None:
    status = quiet({"SIZEWRIGHT_SAMPLES": samples})
    status.add(7)
    assert {*status_of(status)} == {"metrics", "lastUpdatedTime"}
    assert status_of(status)["metrics"]["samples"] == "7"


@pytest.mark.parametrize(
    ("env", "pushes"),
    [
        ({}, True), ({"RANK": "0", "SIZEWRIGHT_INDEX": "3"}, True), ({"RANK": "1", "SIZEWRIGHT_INDEX": "0"}, False),
        ({"SIZEWRIGHT_INDEX": "0"}, True), ({"SIZEWRIGHT_INDEX": "2"}, False), ({"JOB_COMPLETION_INDEX": "1"}, False),
        ({"JOB_COMPLETION_INDEX": "0"}, True), ({"SIZEWRIGHT_ROLE": "ps", "SIZEWRIGHT_INDEX": "0"}, False),
    ],
)  # fmt: skip
def test_only_the_first_worker_pushes(server: StatusServer, env: dict[str, str], pushes: bool) -> None:
    status = TrainerStatus(server.url + PATH, server.environment(**env), every_s=0.01)
    status.add(1)
    if pushes:
        until(lambda: server.pushes)
    else:
        assert status._thread is None


def test_token_is_read_anew_for_each_push(server: StatusServer) -> None:
    status = TrainerStatus(server.url + PATH, server.environment(), every_s=0.01)
    status.add(1)
    until(lambda: server.pushes)
    server.token.write_text("second")
    status.add(1)
    until(lambda: server.pushes[-1].token == "second")


def test_what_did_not_change_is_not_pushed_again(server: StatusServer) -> None:
    status = TrainerStatus(server.url + PATH, server.environment(), every_s=0.01)
    status.add(1)
    until(lambda: server.pushes)
    time.sleep(0.2)
    assert len(server.pushes) == 1


def test_pushes_are_5_seconds_apart(in_trainjob: StatusServer) -> None:
    for _ in range(100):
        log_samples(1)
        time.sleep(0.005)
    assert len(in_trainjob.pushes) <= 1


def _hang(_: Push) -> int:
    time.sleep(60.0)
    return 200


def _drop(_: Push) -> int:
    raise ConnectionError


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: 401, "the status server answered 401"), (lambda _: 500, "the status server answered 500"),
        (lambda _: 307, "the status server answered 307"), (_hang, "timed out"), (_drop, "closed connection"),
    ],
    ids=["unauthorized", "server-error", "redirect", "hang", "drop"],
)  # fmt: skip
def test_first_failure_is_one_line_and_later_ones_are_silent(
    tmp_path: Path, answer: Callable[[Push], int], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with status_server(tmp_path, answer) as server:
        status = TrainerStatus(server.url + PATH, server.environment(), every_s=0.01, timeout_s=0.3)
        while len(server.pushes) < 3:
            status.add(1)
            time.sleep(0.01)
        printed = capfd.readouterr().err
    assert printed.count("\n") == 1
    assert reason in printed
    assert "The training goes on." in printed
    assert "first" not in printed, "the token"


def test_training_does_not_wait_for_a_server_that_hangs(tmp_path: Path) -> None:
    with status_server(tmp_path, _hang) as server:
        status = TrainerStatus(server.url + PATH, server.environment(), every_s=0.01, timeout_s=60.0)
        status.add(1)
        until(lambda: server.pushes)
        for _ in range(1000):
            status.add(1)
        assert len(server.pushes) == 1, "it still waits for the first answer"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"KUBEFLOW_TRAINER_SERVER_CA_CERT": ""}, "CERTIFICATE_VERIFY_FAILED"),
        ({"KUBEFLOW_TRAINER_SERVER_CA_CERT": "/no/such/file"}, "No such file"),
        ({"KUBEFLOW_TRAINER_SERVER_TOKEN": "/no/such/file"}, "No such file"),
        ({"KUBEFLOW_TRAINER_SERVER_TOKEN": os.devnull}, "its file has no token"),
    ],
)
def test_server_that_cannot_be_trusted_gets_nothing(
    server: StatusServer, change: dict[str, str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []
    TrainerStatus(server.url + PATH, server.environment() | change, every_s=3600.0).add(1)
    until(lambda: (printed.append(capfd.readouterr().err), printed[-1])[1])
    assert reason in printed[-1]
    assert server.pushes == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "status", "https://", "https://127.0.0.1:port/"])
def test_address_that_is_no_https_url_gets_no_token(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    TrainerStatus(url, {}, every_s=3600.0).add(1)
    until(lambda: (printed.append(capfd.readouterr().err), printed[-1])[1])
    assert "cannot be pushed to the TrainJob" in printed[-1]


def test_forked_process_pushes_nothing(server: StatusServer) -> None:
    status = TrainerStatus(server.url + PATH, server.environment(), every_s=0.01)
    status.add(1)
    until(lambda: server.pushes)
    child = os.fork()
    if child == 0:
        status.add(1000)
        time.sleep(0.2)
        os._exit(0)
    os.waitpid(child, 0)
    status.add(1)
    until(lambda: len(server.pushes) > 1)
    samples = [push.body["trainerStatus"]["metrics"][0]["value"] for push in server.pushes]
    assert samples == ["1", "2"]


PROGRAM = "import sys, sizewright; sizewright.log_samples(1); print(*sys.modules)"


def test_process_ends_while_its_server_hangs(tmp_path: Path) -> None:
    with status_server(tmp_path, _hang) as server:
        program = "import time; from sizewright import log_samples; log_samples(1); time.sleep(0.5)"
        subprocess.run([sys.executable, "-c", program], env=os.environ | server.environment(), check=True, timeout=30)
        assert len(server.pushes) == 1


def test_nothing_is_loaded_without_a_server() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("KUBEFLOW_")}
    completed = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    assert not {"sizewright.trainer_status", "http.client", "ssl", "urllib.request"} & set(completed.stdout.split())
